// What the fuzzers of tokenizer files do with one that loads: any text becomes tokens that exist, which decode, whole
// and streamed, to valid UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "tests/fuzz/fuzz_target.h"
#include "text/text_stream.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/utf8.h"

namespace nodewright::fuzz {

inline constexpr std::string_view kAnyText =
    " Hello, wörld!\n\n\t12345 it's <|eot_id|> \xF0\x9F\x98\x80 \xFF  e\xCC\x81 <s> [UNK] a\u2581";

inline void use(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    std::vector<TokenId> ids;
    try {
      ids = tokenizer.encode(text, {.parse_special = special, .add_special_tokens = special});
      for (const TokenId id : ids) tokenizer.id_to_bytes(id);
      for (const bool skip : {false, true}) {
        const std::string decoded = tokenizer.decode(ids, skip);
        require(to_valid_utf8(decoded) == decoded, "decoded text is valid UTF-8");
        TextStream stream(tokenizer, skip);
        std::string streamed;
        for (const TokenId id : ids) {
          const std::string part = stream.push(id);
          require(to_valid_utf8(part) == part, "a streamed part is valid UTF-8");
          streamed += part;
        }
        require(streamed + stream.flush() == decoded, "streamed text joins to the decoded one");
      }
    } catch (const Error&) {  // a regular expression gave up, or a character has no token
      return;
    }
  }
}

}  // namespace nodewright::fuzz
