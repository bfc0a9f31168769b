// A small random checkpoint in FP8, and the same weights in bf16: with scales that are powers of two both hold the same
// numbers.
#pragma once

#include "tests/engine/parity/golden_model.h"
#include "tests/kernels/numbers.h"
#include "tests/models/checkpoint_files.h"
#include "tests/models/small_network.h"
#include "tests/support/scratch_folder.h"

namespace nodewright::test {

// The same numbers in two folders: FP8 with scales of rows or of blocks, and bf16.
class Fp8Checkpoint {
 public:
  static constexpr int64_t kKvHeads = 2, kHeadDim = SmallNetwork::kHeadDim, kVocab = SmallNetwork::kVocab,
                           kLayers = SmallNetwork::kLayers;

  // `plain`: a matrix that is bf16 in both; `has_nan`: one with a code of a NaN; `more`: tensors of both.
  explicit Fp8Checkpoint(bool in_blocks, std::string plain_matrix = "", std::string has_nan = "",
                         const std::vector<TestTensor>& more = {},
                         const SmallNetwork& network = {.intermediate = 400, .kv_heads = kKvHeads})
      : in_blocks_(in_blocks), plain_(std::move(plain_matrix)), has_nan_(std::move(has_nan)) {
    const auto count = [](int64_t n) { return static_cast<size_t>(n); };
    const auto plain = [&](const std::string& module, const std::vector<int64_t>& shape, double mean, double size) {
      std::vector<bf16> values(count(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
      for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(mean + size * noise(stream_, i));
      ++stream_;
      for (auto* tensors : {&fp8_, &bf16_}) tensors->push_back({module + ".weight", "BF16", shape, bytes_of(values)});
    };
    network.each_tensor(plain,
                        [&](const std::string& module, int64_t rows, int64_t cols) { quantized(module, rows, cols); });
    for (auto* tensors : {&fp8_, &bf16_}) tensors->insert(tensors->end(), more.begin(), more.end());
    nlohmann::json config = network.config();
    write(in_bf16_, bf16_, config);
    if (in_blocks)
      config["quantization_config"] = {{"quant_method", "fp8"},
                                       {"weight_block_size", {128, 128}},
                                       {"modules_to_not_convert", network.plain_matrices()}};
    else
      config["quantization_config"] = {
          {"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"ignore", network.plain_matrices()},
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

}  // namespace nodewright::test
