// Which checkpoints ranks take for the same.
#include "engine/ranks/rank_terms.h"

#include <gtest/gtest.h>

#include "tests/base/gguf_writer.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

std::string gguf_of(const std::vector<float>& values, const std::string& name = "t") {
  test::GgufWriter writer;
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>(100000, "token"));  // past the head of a file
  writer.add_tensor("first", {1, 2});
  writer.add_tensor(name, values);
  return writer.bytes();
}

TEST(CheckpointIdentity, OfGgufFilesIsThatOfTheirTensors) {
  const ScratchFolder folder;
  const auto one = folder.write("one.gguf", gguf_of({3, 4}));
  EXPECT_EQ(checkpoint_identity(one, true), checkpoint_identity(folder.write("copy.gguf", gguf_of({3, 4})), true));
  for (const std::string& other : {gguf_of({3, 5}), gguf_of({3, 4}, "u"), gguf_of({3, 4, 5})})
    EXPECT_NE(checkpoint_identity(one, true), checkpoint_identity(folder.write("other.gguf", other), true));
}

TEST(CheckpointIdentity, HasTheFileThatSaysHowWeightsAreDecoded) {
  const ScratchFolder folder;
  folder.write("config.json", "{}");
  const std::string without = checkpoint_identity(folder.path(), false);
  folder.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  const std::string fp8 = checkpoint_identity(folder.path(), false);
  folder.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
  EXPECT_NE(without, fp8);
  EXPECT_NE(checkpoint_identity(folder.path(), false), fp8);
}

}  // namespace
}  // namespace nodewright
