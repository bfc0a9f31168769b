// Quantized checkpoints on a device: where their rows, and those of a rank, lie.
#include <algorithm>

#include "models/weights/model_summary.h"
#include "models/weights/weights.h"
#include "runtime/device_selection.h"
#include "tests/models/weights/formats/format_golden.h"

namespace nodewright {
namespace {

// Writes the checkpoint with every matrix decoded, and without quantization_config.
void write_twin(const std::filesystem::path& folder, const std::filesystem::path& to) {
  std::vector<test::TestTensor> tensors;
  for (const auto& [name, values] : test::decode_all(folder))
    tensors.push_back({name, "BF16", test::expected_matrices(folder)[name]["shape"].get<std::vector<int64_t>>(),
                       test::bytes_of(values)});
  for (const test::TestTensor& tensor : test::tensors_of(folder / "model.safetensors"))
    if (tensor.dtype == "BF16" && tensor.name.ends_with(".weight")) tensors.push_back(tensor);
  write_text(to / "model.safetensors", test::safetensors_of(tensors));
  nlohmann::json config = test::json_of(folder / "config.json");
  config.erase("quantization_config");
  config.erase("compression_config");
  write_text(to / "config.json", config.dump());
}

class FormatsOnCpuDriver : public ::testing::Test {
 protected:
  FormatsOnCpuDriver() : opened_(open_device("cpu")), stream_(*opened_.device, "test") {}

  // All weights of a rank, as they lie on the device.
  std::vector<uint16_t> image_of(const std::filesystem::path& folder, Shard shard) {
    const ModelConfig config = shard_of(read_model_config(folder), shard);
    const DecoderWeights weights = DecoderWeights::load(*opened_.device, stream_, Checkpoint::open(folder), config);
    std::vector<uint16_t> image;
    for (const NamedRange& range : weights.ranges()) {  // the gaps between are undefined
      std::vector<uint16_t> values(range.bytes / 2);
      read_device(*opened_.device, std::as_writable_bytes(std::span(values)), range.address, "weights");
      image.insert(image.end(), values.begin(), values.end());
    }
    return image;
  }

  OpenedDevice opened_;
  Stream stream_;
};

TEST_F(FormatsOnCpuDriver, LieOnTheDeviceLikeTheSameWeightsInBf16) {
  for (const std::string& name : test::all_formats()) {
    const ScratchFolder twin;
    write_twin(test::format_folder(name), twin.path());
    EXPECT_EQ(image_of(test::format_folder(name), {}), image_of(twin.path(), {})) << name;
  }
}

TEST_F(FormatsOnCpuDriver, AreSharedByRanksLikeTheSameWeightsInBf16) {
  for (const char* name : {"fp8_block", "ct_int4_zeros", "gptq_ordered", "awq", "ct_nvfp4"}) {
    const ScratchFolder twin;
    write_twin(test::format_folder(name), twin.path());
    for (const int64_t rank : {0, 1})
      EXPECT_EQ(image_of(test::format_folder(name), {rank, 2}), image_of(twin.path(), {rank, 2})) << name << rank;
  }
}

TEST(GoldenFormats, AreCountedAsWhatTheyStandFor) {
  const auto folder = test::format_folder("ct_int4_group");
  const ModelConfig config = read_model_config(folder);
  const ModelSummary summary = summarize(Checkpoint::open(folder), config);
  const auto int4 = std::ranges::find(summary.dtypes, "int4, groups of 32", &TensorShare::name);
  ASSERT_NE(int4, summary.dtypes.end());
  EXPECT_EQ(int4->tensors, 7u);
  EXPECT_EQ(int4->parameters, 7u * 64 * 96);
  // Half a byte each, a bf16 scale for 32 of them, and the shape of each matrix in 16 bytes.
  EXPECT_EQ(int4->bytes, int4->parameters / 2 + int4->parameters / 32 * 2 + 7 * 16);
}

}  // namespace
}  // namespace nodewright
