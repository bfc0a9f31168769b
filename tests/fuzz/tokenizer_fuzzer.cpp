// tokenizer.json, and behind a zero byte a text that it shall encode. What loads must encode any text into tokens that
// exist, and decode them again to valid UTF-8.
#include "runtime/error.h"
#include "tests/fuzz/fuzz_target.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/utf8.h"

using namespace nodewright;

namespace {

constexpr std::string_view kText = " Hello, wörld!\n\n\t12345 it's <|eot_id|> \xF0\x9F\x98\x80 \xFF  e\xCC\x81";

void use(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    std::vector<TokenId> ids;
    try {
      ids = tokenizer.encode(text, {.parse_special = special, .add_special_tokens = special});
    } catch (const Error&) {  // its regular expression gave up
      return;
    }
    for (const TokenId id : ids) tokenizer.id_to_bytes(id);
    for (const bool skip : {false, true}) {
      const std::string decoded = tokenizer.decode(ids, skip);
      fuzz::require(to_valid_utf8(decoded) == decoded, "decoded text is valid UTF-8");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::MemoryFile file("tokenizer.json");
  const fuzz::TwoParts parts = fuzz::two_parts(data, size);
  const auto& path = file.holding(parts.first);
  fuzz::expect_refusal_or_success(path.native(), [&] {
    const Tokenizer tokenizer = Tokenizer::from_file(path);
    use(tokenizer, kText);
    use(tokenizer, parts.second);
  });
  return 0;
}
