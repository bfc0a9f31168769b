// What the fuzzers of tokenizer files do: one is loaded with work in proportion to its size, or refused; any text
// becomes tokens that exist, within the work that its bytes stand for, and they decode, whole and streamed, to valid
// UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/meter.h"
#include "text/text_stream.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/utf8.h"

namespace nodewright::fuzz {

inline constexpr std::string_view kAnyText =
    " Hello, wörld!\n\n\t12345 it's <|eot_id|> \xF0\x9F\x98\x80 \xFF  e\xCC\x81 <s> [UNK] a\u2581";

// A byte of a text is 16 units, and a normalizer makes some more bytes of it; a file's tokens may name an end of text.
inline constexpr uint64_t kMostUnitsOfByte = 16 * 20;

// A table of 4 Mi ids, which a file of any size may name.
inline constexpr uint64_t kBytesOfTables = uint64_t{400} << 20;

inline Tokenizer loaded(const std::filesystem::path& path, size_t size) {
  return metered("loading a tokenizer", {kMostUnitsOfByte * size, size, kBytesOfTables},
                 [&] { return Tokenizer::from_file(path); });
}

inline void use(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    std::vector<TokenId> ids;
    try {
      ids = metered("encoding", {kMostUnitsOfByte * text.size(), text.size()},
                    [&] { return tokenizer.encode(text, {.parse_special = special, .add_special_tokens = special}); });
      for (const TokenId id : ids) tokenizer.id_to_bytes(id);
      for (const bool skip : {false, true}) {
        const std::string decoded =
            metered("decoding", {.free = ids.size()}, [&] { return tokenizer.decode(ids, skip); });
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
