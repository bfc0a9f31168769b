// tokenizer.json, and behind a zero byte a text that it shall encode. What loads must encode any text into tokens that
// exist, and decode them again to valid UTF-8.
#include "tests/fuzz/tokenizer_use.h"

using namespace nodewright;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::MemoryFile file("tokenizer.json");
  const fuzz::TwoParts parts = fuzz::two_parts(data, size);
  const auto& path = file.holding(parts.first);
  fuzz::expect_refusal_or_success(path.native(), [&] {
    const Tokenizer tokenizer = fuzz::loaded(path, parts.first.size());
    fuzz::use(tokenizer, fuzz::kAnyText);
    fuzz::use(tokenizer, parts.second);
  });
  return 0;
}
