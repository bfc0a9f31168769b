// tokenizer.model, or tekken.json where the input begins like an object. What loads must encode any text into tokens
// that exist, and decode them again to valid UTF-8.
#include "tests/fuzz/tokenizer_use.h"

using namespace nodewright;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::ScratchFolder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const char* name = bytes.starts_with('{') ? "tekken.json" : "tokenizer.model";
  folder.write(name, bytes);
  const auto path = folder.path() / name;
  fuzz::expect_refusal_or_success(path.native(), [&] { fuzz::use(fuzz::loaded(path, size), fuzz::kAnyText); });
  return 0;
}
