// A checkpoint in FP8 against the same weights in bf16: with scales that are powers of two both hold the same numbers,
// so that logits differ by the order of sums alone.
#include "tests/engine/parity/parity_limits.h"
#include "tests/kernels/numbers.h"
#include "tests/models/checkpoint_files.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

constexpr int64_t kHidden = 256, kHeads = 4, kKvHeads = 2, kHeadDim = 64, kIntermediate = 400, kVocab = 90, kLayers = 2;

// The same numbers in two folders: FP8 with scales of rows or of blocks, and bf16.
class Fp8Checkpoint {
 public:
  // `plain`: a matrix that is bf16 in both; `has_nan`: one with a code of a NaN.
  explicit Fp8Checkpoint(bool in_blocks, std::string plain_matrix = "", std::string has_nan = "")
      : in_blocks_(in_blocks), plain_(std::move(plain_matrix)), has_nan_(std::move(has_nan)) {
    const auto count = [](int64_t n) { return static_cast<size_t>(n); };
    const auto plain = [&](const std::string& name, const std::vector<int64_t>& shape, double mean, double size) {
      std::vector<bf16> values(count(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
      for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(mean + size * noise(stream_, i));
      ++stream_;
      for (auto* tensors : {&fp8_, &bf16_}) tensors->push_back({name, "BF16", shape, bytes_of(values)});
    };
    plain("model.embed_tokens.weight", {kVocab, kHidden}, 0, 1);
    for (int64_t l = 0; l < kLayers; ++l) {
      const std::string layer = "model.layers." + std::to_string(l) + ".";
      plain(layer + "input_layernorm.weight", {kHidden}, 1, 0.2);
      quantized(layer + "self_attn.q_proj", kHeads * kHeadDim, kHidden);
      quantized(layer + "self_attn.k_proj", kKvHeads * kHeadDim, kHidden);
      quantized(layer + "self_attn.v_proj", kKvHeads * kHeadDim, kHidden);
      quantized(layer + "self_attn.o_proj", kHidden, kHeads * kHeadDim);
      plain(layer + "post_attention_layernorm.weight", {kHidden}, 1, 0.2);
      quantized(layer + "mlp.gate_proj", kIntermediate, kHidden);
      quantized(layer + "mlp.up_proj", kIntermediate, kHidden);
      quantized(layer + "mlp.down_proj", kHidden, kIntermediate);
    }
    plain("model.norm.weight", {kHidden}, 1, 0.2);
    plain("lm_head.weight", {kVocab, kHidden}, 0, 0.1);
    nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                             {"hidden_size", kHidden},
                             {"num_hidden_layers", kLayers},
                             {"num_attention_heads", kHeads},
                             {"num_key_value_heads", kKvHeads},
                             {"head_dim", kHeadDim},
                             {"intermediate_size", kIntermediate},
                             {"vocab_size", kVocab},
                             {"rms_norm_eps", 1e-5},
                             {"max_position_embeddings", 256},
                             {"tie_word_embeddings", false},
                             {"bos_token_id", 1},
                             {"eos_token_id", 2}};
    write(in_bf16_, bf16_, config);
    if (in_blocks)
      config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    else
      config["quantization_config"] = {
          {"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"ignore", {"lm_head"}},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}, {"symmetric", true}}}}}}}};
    write(in_fp8_, fp8_, config);
  }

  std::string in_fp8() const { return in_fp8_.path().string(); }
  std::string in_bf16() const { return in_bf16_.path().string(); }

 private:
  void quantized(const std::string& module, int64_t rows, int64_t cols) {
    const auto at = [](int64_t i) { return static_cast<size_t>(i); };
    const int64_t block_rows = in_blocks_ ? 128 : 1, block_cols = in_blocks_ ? 128 : cols;
    const int64_t grid_rows = (rows + block_rows - 1) / block_rows, grid_cols = (cols + block_cols - 1) / block_cols;
    std::vector<float> scales(at(grid_rows * grid_cols));
    for (size_t i = 0; i < scales.size(); ++i)
      scales[i] = std::ldexp(1.0f, -11 - static_cast<int>(random_bits(stream_, i) % 3));
    std::vector<uint8_t> codes(at(rows * cols));
    std::vector<bf16> values(codes.size());
    for (int64_t i = 0; i < rows * cols; ++i) {
      uint8_t& code = codes[at(i)];
      code = static_cast<uint8_t>(random_bits(stream_ + 1, at(i)));
      if ((code & 0x7f) == 0x7f) code = 0;
      values[at(i)] =
          to_bf16(value_of_fp8(code) * scales[at(i / cols / block_rows * grid_cols + i % cols / block_cols)]);
    }
    stream_ += 2;
    if (module == has_nan_) codes.back() = 0xff;
    if (module == plain_) return add_plain(module, rows, cols, values);
    bf16_.push_back({module + ".weight", "BF16", {rows, cols}, bytes_of(values)});
    fp8_.push_back({module + ".weight", "F8_E4M3", {rows, cols}, bytes_of(codes)});
    fp8_.push_back({module + (in_blocks_ ? ".weight_scale_inv" : ".weight_scale"),
                    "F32",
                    {grid_rows, grid_cols},
                    bytes_of(scales)});
  }
  void add_plain(const std::string& module, int64_t rows, int64_t cols, const std::vector<bf16>& values) {
    for (auto* tensors : {&fp8_, &bf16_})
      tensors->push_back({module + ".weight", "BF16", {rows, cols}, bytes_of(values)});
  }
  static void write(const ScratchFolder& folder, const std::vector<TestTensor>& tensors, const nlohmann::json& config) {
    write_text(folder.path() / "model.safetensors", safetensors_of(tensors));
    write_text(folder.path() / "config.json", config.dump());
  }

  bool in_blocks_;
  std::string plain_, has_nan_;
  uint64_t stream_ = 0;
  std::vector<TestTensor> fp8_, bf16_;
  ScratchFolder in_fp8_, in_bf16_;
};

// The logits of some tokens after a prompt, in steps of each of these numbers of rows.
struct Steps {
  std::vector<std::vector<Logits>> logits;
  WeightLayouts layouts;
  uint64_t bytes_per_token = 0;
};
Steps steps_of(const std::string& folder, const std::vector<int64_t>& buckets, size_t prompt_tokens) {
  LoadedModel loaded(folder);
  const Tokens prompt = some_tokens(prompt_tokens, loaded.vocab(), 3), continuation = some_tokens(3, loaded.vocab(), 4);
  Steps steps{{}, loaded.model.config().layouts, loaded.model.weights().bytes_per_token()};
  for (const int64_t bucket : buckets) {
    DecoderOptions options = decoder_options(bucket);
    options.sequences = bucket, options.prefill_rows = std::max<int64_t>(bucket, 8);
    Decoder decoder = loaded.decoder(options);
    steps.logits.push_back(forced_logits(decoder, loaded, prompt, continuation));
  }
  return steps;
}

class Fp8Weights : public testing::TestWithParam<bool> {};

// One row, rows in tiles and held, and products of the library; the prompt in all of them.
TEST_P(Fp8Weights, GiveTheLogitsOfTheSameWeightsInBf16) {
  const Fp8Checkpoint checkpoint(GetParam());
  const std::vector<int64_t> buckets = {1, 4, 8, 24, 40};
  const Steps fp8 = steps_of(checkpoint.in_fp8(), buckets, 9), bf16 = steps_of(checkpoint.in_bf16(), buckets, 9);
  for (const WeightLayout& layout : {fp8.layouts.qkv, fp8.layouts.out, fp8.layouts.gate_up, fp8.layouts.down}) {
    EXPECT_TRUE(layout.is_fp8());
    EXPECT_EQ(layout.in_blocks, GetParam());
  }
  EXPECT_LT(fp8.bytes_per_token, bf16.bytes_per_token * 6 / 10);
  for (size_t i = 0; i < buckets.size(); ++i)
    EXPECT_LE(relative_error(fp8.logits[i], bf16.logits[i]), 0.01) << buckets[i] << " rows";
}

TEST_P(Fp8Weights, AreDequantizedWhereSomeLayerHasTheMatrixInBf16) {
  const Fp8Checkpoint checkpoint(GetParam(), "model.layers.1.self_attn.o_proj");
  const Steps fp8 = steps_of(checkpoint.in_fp8(), {1}, 5), bf16 = steps_of(checkpoint.in_bf16(), {1}, 5);
  EXPECT_FALSE(fp8.layouts.out.is_fp8());
  EXPECT_TRUE(fp8.layouts.down.is_fp8());
  EXPECT_LE(relative_error(fp8.logits[0], bf16.logits[0]), 0.01);
}

TEST_P(Fp8Weights, WithANaNAreRefused) {
  const Fp8Checkpoint checkpoint(GetParam(), "", "model.layers.1.mlp.up_proj");
  EXPECT_THROW(LoadedModel(checkpoint.in_fp8()), Error);
}

TEST_P(Fp8Weights, ModesChangeNoBit) {
  const Fp8Checkpoint checkpoint(GetParam());
  LoadedModel loaded(checkpoint.in_fp8());
  const Tokens prompt = some_tokens(20, loaded.vocab(), 3), continuation = some_tokens(3, loaded.vocab(), 4);
  for (const int64_t bucket : {1, 8, 40}) {
    std::vector<Logits> first;
    for (const RunMode mode : {RunMode::explicit_, RunMode::captured, RunMode::eager}) {
      DecoderOptions options = decoder_options(bucket, mode);
      options.sequences = bucket;
      Decoder decoder = loaded.decoder(options);
      const std::vector<Logits> rows = forced_logits(decoder, loaded, prompt, continuation);
      if (first.empty()) first = rows;
      EXPECT_TRUE(same_bits(rows, first)) << bucket << " rows, mode " << static_cast<int>(mode);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, Fp8Weights, testing::Bool(),
                         [](const auto& info) { return info.param ? "of_blocks" : "of_rows"; });

}  // namespace
}  // namespace nodewright
