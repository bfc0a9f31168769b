// Quantized checkpoints on a device: where their rows, and those of a rank, lie.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "models/config/rope_frequencies.h"
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
  const nlohmann::json decoded = test::expected_matrices(folder);
  for (const test::TestTensor& tensor : test::tensors_of(folder / "model.safetensors"))
    if (tensor.dtype == "BF16" && tensor.name.ends_with(".weight") && !decoded.contains(tensor.name))
      tensors.push_back(tensor);
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
    return image_of(DecoderWeights::load(*opened_.device, stream_, Checkpoint::open(folder), config));
  }
  std::vector<uint16_t> image_of(const DecoderWeights& weights) {
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
  for (const char* name : {"fp8_block", "ct_int4_zeros", "gptq_ordered", "awq", "ct_nvfp4", "bnb_nf4_nested"}) {
    const ScratchFolder twin;
    write_twin(test::format_folder(name), twin.path());
    for (const int64_t rank : {0, 1})
      EXPECT_EQ(image_of(test::format_folder(name), {rank, 2}), image_of(twin.path(), {rank, 2})) << name << rank;
  }
}

// As AutoGPTQ writes them.
TEST_F(FormatsOnCpuDriver, MayHaveBiasesOfZerosThatTheNetworkLacks) {
  const auto with_bias = [](test::EditedFormat& edited, char byte) {
    std::vector<test::TestTensor> tensors = test::tensors_of(edited.file());
    tensors.push_back({"model.layers.0.mlp.up_proj.bias", "F16", {64}, std::string(128, byte)});
    write_text(edited.file(), test::safetensors_of(tensors));
  };
  for (const char* name : {"gptq", "awq"}) {
    test::EditedFormat zeros(name), others(name);
    with_bias(zeros, 0);
    EXPECT_EQ(image_of(zeros.path(), {}), image_of(test::format_folder(name), {})) << name;
    with_bias(others, 1);
    expect_error([&] { image_of(others.path(), {}); }, {"model.layers.0.mlp.up_proj.bias", "no part of the network"});
  }
}

// What is added to matrices while they are loaded is added before they are rounded, to a quantized one as well.
TEST_F(FormatsOnCpuDriver, TakeWhatAnAdapterAddsToThem) {
  const auto with_deltas = [&](const std::filesystem::path& folder, int64_t rank) {
    const ModelConfig config = shard_of(read_model_config(folder), {rank, 2});
    const Checkpoint checkpoint = Checkpoint::open(folder);
    DecoderWeights::Places placed = DecoderWeights::place(*opened_.device, checkpoint, config);
    std::map<std::string, std::vector<WeightDelta>> deltas;
    for (WeightSource& source : placed.sources)
      for (WeightPart& part : source.parts) {
        if (part.tensor->shape.size() != 2 || !part.tensor->name.ends_with("_proj.weight")) continue;
        WeightDelta delta{.rank = 1, .cols = part.tensor->shape[1], .scale = 0.5f};
        for (int64_t i = 0; i < delta.cols; ++i) delta.a.push_back(static_cast<float>(i % 7) - 3);
        for (int64_t i = 0; i < part.tensor->shape[0]; ++i) delta.b.push_back(0.001f * static_cast<float>(i % 5));
        part.deltas = &(deltas[part.tensor->name] = {delta});
      }
    upload_weights(*opened_.device, stream_, placed.sources, placed.weights.range(), {});
    return image_of(placed.weights);
  };
  for (const char* name : {"fp8_tensor", "gptq"}) {
    // As exact as the quantized weights: bf16 would round them before the sum.
    const ScratchFolder twin;
    std::vector<test::TestTensor> tensors;
    const std::filesystem::path folder = test::format_folder(name);
    const Checkpoint checkpoint = Checkpoint::open(folder);
    const nlohmann::json expected = test::expected_matrices(folder);
    for (const auto& [matrix, about] : expected.items()) {
      const auto shape = about.at("shape").get<std::vector<int64_t>>();
      std::vector<float> values(static_cast<size_t>(shape[0] * shape[1]));
      checkpoint.require(matrix, shape).encoded->decode(0, shape[0], values);
      tensors.push_back({matrix, "F32", shape, test::bytes_of(values)});
    }
    for (const test::TestTensor& tensor : test::tensors_of(folder / "model.safetensors"))
      if (tensor.dtype == "BF16" && tensor.name.ends_with(".weight")) tensors.push_back(tensor);
    twin.write("model.safetensors", test::safetensors_of(tensors));
    nlohmann::json config = test::json_of(folder / "config.json");
    config.erase("quantization_config");
    twin.write("config.json", config.dump());
    for (const int64_t rank : {0, 1}) {
      EXPECT_EQ(with_deltas(folder, rank), with_deltas(twin.path(), rank)) << name;
      EXPECT_NE(with_deltas(folder, rank), image_of(folder, {rank, 2})) << name;
    }
  }
}

// Drawn weights are bf16 whatever config.json says of those in files, which nobody looks for.
TEST_F(FormatsOnCpuDriver, AreDrawnInBf16WithoutTheirFiles) {
  for (const char* name : {"fp8_block", "ct_mixed", "gptq_dynamic", "awq", "bnb_nf4"}) {
    const auto drawn = [&](bool quantized) {
      const ScratchFolder folder;
      nlohmann::json config = test::json_of(test::format_folder(name) / "config.json");
      if (!quantized) config.erase("quantization_config");
      folder.write("config.json", config.dump());
      return image_of(DecoderWeights::load(*opened_.device, stream_, Checkpoint::dummy(folder.path()),
                                           read_model_config(folder.path())));
    };
    EXPECT_EQ(drawn(true), drawn(false)) << name;
  }
}

// ---- GGUF, whose tensors have other names, and some another order, than those of the same model elsewhere

constexpr const char* kGgufModels[] = {"llama",    "mixtral", "granite", "smollm3", "qwen2",  "qwen3",
                                       "qwen3moe", "phi3",    "olmo2",   "gemma",   "gemma2", "gemma3"};

std::filesystem::path gguf_folder(const std::string& name) { return test::source_dir() / "tests/golden/gguf" / name; }

// A matrix or a vector of the file in bf16, in the order of the checkpoint that it was made from.
std::vector<uint16_t> gguf_values(const Checkpoint& checkpoint, const nlohmann::json& about) {
  const auto shape = about.at("shape").get<std::vector<int64_t>>();
  const TensorInfo& tensor = checkpoint.require(about.at("stored").get<std::string>(), shape);
  std::vector<uint16_t> values;
  if (tensor.encoded != nullptr) {
    values = test::decoded(tensor, 5);
  } else {
    std::vector<std::byte> bytes(tensor.bytes);
    tensor.file->read(tensor.offset, bytes);
    values.resize(tensor.bytes * 8 / dtype_bits(tensor.dtype));
    convert_to_bf16(tensor.dtype, bytes.data(), reinterpret_cast<bf16*>(values.data()),
                    static_cast<int64_t>(values.size()));
  }
  const auto heads = about.at("heads").get<size_t>();
  if (heads == 0) return values;
  const size_t dim = static_cast<size_t>(shape[0]) / heads, cols = static_cast<size_t>(shape[1]);
  std::vector<uint16_t> ordered(values.size());
  for (size_t row = 0; row < heads * dim; ++row) {
    const size_t in_head = row % dim, from = row - in_head + in_head % (dim / 2) * 2 + in_head / (dim / 2);
    std::copy_n(values.begin() + static_cast<ptrdiff_t>(from * cols), cols,
                ordered.begin() + static_cast<ptrdiff_t>(row * cols));
  }
  return ordered;
}

TEST_F(FormatsOnCpuDriver, OfGgufLieOnTheDeviceLikeTheSameModelElsewhere) {
  for (const char* name : kGgufModels) {
    const std::filesystem::path file = gguf_folder(name) / "model.gguf";
    const Checkpoint checkpoint = Checkpoint::open(file);
    const nlohmann::json expected = test::expected_matrices(gguf_folder(name));
    std::vector<test::TestTensor> tensors;
    for (const auto& [matrix, about] : expected.items()) {
      const std::vector<uint16_t> values = gguf_values(checkpoint, about);
      EXPECT_EQ(test::digest_of(values), about.at("digest").get<std::string>()) << name << " " << matrix;
      tensors.push_back({matrix, "BF16", about.at("shape").get<std::vector<int64_t>>(), test::bytes_of(values)});
    }
    const ScratchFolder twin;
    twin.write("model.safetensors", test::safetensors_of(tensors));
    twin.write("config.json", read_text(gguf_folder(name) / "config.json"));
    EXPECT_EQ(image_of(file, {}), image_of(twin.path(), {})) << name;
    for (const int64_t rank : {0, 1}) EXPECT_EQ(image_of(file, {rank, 2}), image_of(twin.path(), {rank, 2})) << name;
  }
}

TEST(GgufConfig, IsThatOfTheSameModelElsewhere) {
  for (const char* name : kGgufModels) {
    const ModelConfig a = read_model_config(gguf_folder(name) / "model.gguf"), b = read_model_config(gguf_folder(name));
    SCOPED_TRACE(name);
    EXPECT_EQ(a.architecture, b.architecture);
    EXPECT_EQ(std::tie(a.hidden, a.layers, a.heads, a.kv_heads, a.head_dim, a.vocab, a.max_position, a.tied, a.eps),
              std::tie(b.hidden, b.layers, b.heads, b.kv_heads, b.head_dim, b.vocab, b.max_position, b.tied, b.eps));
    EXPECT_EQ(
        std::tie(a.intermediate, a.experts.count, a.experts.chosen, a.experts.normalised, a.experts.intermediate),
        std::tie(b.intermediate, b.experts.count, b.experts.chosen, b.experts.normalised, b.experts.intermediate));
    EXPECT_EQ(std::tie(a.norm, a.pre_norms, a.post_norms, a.head_norm, a.biases, a.activation, a.gated, a.query_scale),
              std::tie(b.norm, b.pre_norms, b.post_norms, b.head_norm, b.biases, b.activation, b.gated, b.query_scale));
    EXPECT_EQ(std::tie(a.residual_scale, a.logit_scale, a.unrotated, a.rotary_dim, a.learned_positions, a.dense),
              std::tie(b.residual_scale, b.logit_scale, b.unrotated, b.rotary_dim, b.learned_positions, b.dense));
    EXPECT_EQ(std::tie(a.embedding_scale, a.score_cap, a.logit_cap, a.window, a.sliding, a.bos, a.eos),
              std::tie(b.embedding_scale, b.score_cap, b.logit_cap, b.window, b.sliding, b.bos, b.eos));
    EXPECT_EQ(a.local_rope.has_value(), b.local_rope.has_value());
    const std::vector<float> rotations = rotation_table(a, &a.rope, 100), others = rotation_table(b, &b.rope, 100);
    ASSERT_EQ(rotations.size(), others.size());
    for (size_t i = 0; i < rotations.size(); ++i) EXPECT_NEAR(rotations[i], others[i], 2e-7 * std::abs(others[i])) << i;
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
