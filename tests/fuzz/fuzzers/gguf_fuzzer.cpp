// A GGUF file: its header, the configuration, the tokenizer and the tensors. What is accepted must be safe to compute
// with, and every row can be decoded.
#include <algorithm>
#include <vector>

#include "models/config/model_config.h"
#include "models/weights/checkpoint.h"
#include "tests/fuzz/encoded_rows.h"
#include "tests/fuzz/tokenizer_use.h"

using namespace nodewright;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::ScratchFolder folder;
  folder.write("model.gguf", {reinterpret_cast<const char*>(data), size});
  const std::filesystem::path path = folder.path() / "model.gguf";
  fuzz::expect_refusal_or_success(folder.path().native(), [&] {
    const ModelConfig config = read_model_config(path);
    for (const int64_t number : {config.hidden, config.layers, config.heads, config.kv_heads, config.head_dim})
      fuzz::require(number > 0, "a size is positive");
  });
  fuzz::expect_refusal_or_success(folder.path().native(), [&] {
    const Checkpoint checkpoint = Checkpoint::open(path);
    for (const TensorInfo& tensor : checkpoint.tensors()) fuzz::decode_rows(checkpoint, tensor.name, tensor.shape);
  });
  fuzz::expect_refusal_or_success(folder.path().native(), [&] { fuzz::use(fuzz::loaded(path, size), fuzz::kAnyText); });
  return 0;
}
