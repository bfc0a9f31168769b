// A small random checkpoint in int4, as a library stores it, and the same numbers in bf16.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/checkpoint_files.h"
#include "tests/models/small_network.h"
#include "tests/support/scratch_folder.h"

namespace nodewright::test {

enum class Int4Form : uint8_t { compressed, compressed_zeros, gptq, gptq_v2, gptq_ordered, awq };

// Scales have three bits, so that bf16 holds each product with a code.
class Int4Checkpoint {
 public:
  static constexpr int64_t kVocab = SmallNetwork::kVocab;

  // `group`: columns that share a scale; -1: those of a row. `plain`: a matrix that is bf16 in both; `other_group`: one
  // whose groups have 32 columns.
  explicit Int4Checkpoint(Int4Form form, int64_t group = 128, std::string plain = "", std::string other_group = "",
                          const SmallNetwork& network = {})
      : form_(form), group_(group), plain_(std::move(plain)), other_group_(std::move(other_group)), network_(network) {
    network.each_tensor([&](const std::string& module, const std::vector<int64_t>& shape, float mean,
                            float size) { bf16_matrix(module, shape, mean, size); },
                        [&](const std::string& module, int64_t rows, int64_t cols) { quantized(module, rows, cols); });
    nlohmann::json config = network.config();
    write(in_bf16_, bf16_, config);
    config["quantization_config"] = quantization_config();
    write(in_int4_, int4_, config);
  }

  std::string in_int4() const { return in_int4_.path().string(); }
  std::string in_bf16() const { return in_bf16_.path().string(); }

 private:
  bool is_compressed() const { return form_ == Int4Form::compressed || form_ == Int4Form::compressed_zeros; }

  nlohmann::json quantization_config() const {
    if (form_ == Int4Form::awq)
      return {{"quant_method", "awq"}, {"bits", 4}, {"group_size", group_}, {"version", "gemm"}};
    if (!is_compressed()) {
      nlohmann::json config = {{"quant_method", "gptq"},
                               {"bits", 4},
                               {"group_size", group_},
                               {"desc_act", form_ == Int4Form::gptq_ordered},
                               {"checkpoint_format", form_ == Int4Form::gptq_v2 ? "gptq_v2" : "gptq"}};
      if (!other_group_.empty()) config["dynamic"] = {{"+:" + other_group_, {{"group_size", 32}}}};
      return config;
    }
    const auto scheme = [&](const std::string& target, int64_t group) {
      nlohmann::json weights = {{"num_bits", 4},
                                {"type", "int"},
                                {"strategy", group < 0 ? "channel" : "group"},
                                {"symmetric", form_ == Int4Form::compressed}};
      if (group > 0) weights["group_size"] = group;
      return nlohmann::json{{"targets", {target}}, {"weights", weights}};
    };
    nlohmann::json groups = {{"group_0", scheme("Linear", group_)}};
    if (!other_group_.empty()) groups["group_1"] = scheme(other_group_, 32);
    nlohmann::json ignored = network_.plain_matrices();
    if (!plain_.empty()) ignored.push_back(plain_);
    return {{"quant_method", "compressed-tensors"},
            {"format", "pack-quantized"},
            {"ignore", ignored},
            {"config_groups", groups}};
  }

  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  static uint16_t bf16_bits(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

  void bf16_matrix(const std::string& module, const std::vector<int64_t>& shape, float mean, float size) {
    std::uniform_real_distribution<float> noise(mean - size, mean + size);
    std::vector<uint16_t> values(at(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
    for (uint16_t& value : values) value = bf16_bits(noise(random_));
    for (auto* tensors : {&int4_, &bf16_}) tensors->push_back({module + ".weight", "BF16", shape, bytes_of(values)});
  }

  // Word w of `words` gets the code at place i of it.
  static void put(std::vector<uint32_t>& words, int64_t w, int64_t i, uint32_t code) { words[at(w)] |= code << 4 * i; }

  void quantized(const std::string& module, int64_t rows, int64_t cols) {
    if (module == plain_) return bf16_matrix(module, {rows, cols}, 0, 0.1f);
    const int64_t size = module == other_group_ ? 32 : group_ < 0 ? cols : group_, groups = (cols + size - 1) / size;
    std::vector<int32_t> group_of(at(cols));
    for (int64_t k = 0; k < cols; ++k) group_of[at(k)] = static_cast<int32_t>(k / size);
    if (form_ == Int4Form::gptq_ordered) std::ranges::shuffle(group_of, random_);
    // [rows, groups] of bf16, and of fp16 where a scale is (4 + i) / 4 / 2^j.
    std::vector<uint32_t> zeros(at(rows * groups), 8);
    std::vector<float> scales(zeros.size());
    for (size_t i = 0; i < zeros.size(); ++i) {
      if (form_ != Int4Form::compressed) zeros[i] = 1 + random_() % 15;
      scales[i] = std::ldexp(static_cast<float>(4 + random_() % 4), -9 - static_cast<int>(random_() % 3));
    }
    std::vector<uint32_t> codes(at(rows * cols));
    std::vector<uint16_t> values(codes.size());
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < cols; ++k) {
        const size_t of = at(n * groups + group_of[at(k)]);
        codes[at(n * cols + k)] = random_() % 16;
        values[at(n * cols + k)] =
            bf16_bits((static_cast<float>(codes[at(n * cols + k)]) - static_cast<float>(zeros[of])) * scales[of]);
      }
    bf16_.push_back({module + ".weight", "BF16", {rows, cols}, bytes_of(values)});
    if (is_compressed())
      add_compressed(module, rows, cols, groups, codes, zeros, scales);
    else
      add_columns(module, rows, cols, group_of, groups, codes, zeros, scales);
  }

  void add_compressed(const std::string& module, int64_t rows, int64_t cols, int64_t groups,
                      const std::vector<uint32_t>& codes, const std::vector<uint32_t>& zeros,
                      const std::vector<float>& scales) {
    std::vector<uint32_t> packed(at(rows * cols / 8)), packed_zeros(at(rows / 8 * groups));
    std::vector<uint16_t> of_bf16;
    for (const float scale : scales) of_bf16.push_back(bf16_bits(scale));
    for (int64_t i = 0; i < rows * cols; ++i) put(packed, i / 8, i % 8, codes[at(i)]);
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t g = 0; g < groups; ++g) put(packed_zeros, n / 8 * groups + g, n % 8, zeros[at(n * groups + g)]);
    const std::vector<int64_t> shape = {rows, cols};
    int4_.push_back({module + ".weight_packed", "I32", {rows, cols / 8}, bytes_of(packed)});
    int4_.push_back({module + ".weight_scale", "BF16", {rows, groups}, bytes_of(of_bf16)});
    int4_.push_back({module + ".weight_shape", "I64", {2}, bytes_of(shape)});
    if (form_ == Int4Form::compressed_zeros)
      int4_.push_back({module + ".weight_zero_point", "I32", {rows / 8, groups}, bytes_of(packed_zeros)});
  }

  void add_columns(const std::string& module, int64_t rows, int64_t cols, const std::vector<int32_t>& group_of,
                   int64_t groups, const std::vector<uint32_t>& codes, const std::vector<uint32_t>& zeros,
                   const std::vector<float>& scales) {
    const bool awq = form_ == Int4Form::awq;
    constexpr std::array<int64_t, 8> kPlaces = {0, 4, 1, 5, 2, 6, 3, 7};  // of outputs in AWQ's words
    const auto place = [&](int64_t n) { return awq ? kPlaces.at(at(n % 8)) : n % 8; };
    std::vector<uint32_t> packed(at(rows * cols / 8)), packed_zeros(at(groups * rows / 8));
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < cols; ++k) {
        const uint32_t code = codes[at(n * cols + k)];
        if (awq)
          put(packed, k * (rows / 8) + n / 8, place(n), code);
        else
          put(packed, k / 8 * rows + n, k % 8, code);
      }
    std::vector<uint16_t> of_fp16(at(groups * rows));
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t g = 0; g < groups; ++g) {
        const size_t of = at(n * groups + g);
        put(packed_zeros, g * (rows / 8) + n / 8, place(n),
            zeros[of] - (form_ == Int4Form::awq || form_ == Int4Form::gptq_v2 ? 0 : 1));
        const auto bits = std::bit_cast<uint32_t>(scales[of]);  // a normal number of fp16
        of_fp16[at(g * rows + n)] = static_cast<uint16_t>((bits >> 13) - ((127 - 15) << 10));
      }
    int4_.push_back({module + ".qweight", "I32", {awq ? cols : cols / 8, awq ? rows / 8 : rows}, bytes_of(packed)});
    int4_.push_back({module + ".qzeros", "I32", {groups, rows / 8}, bytes_of(packed_zeros)});
    int4_.push_back({module + ".scales", "F16", {groups, rows}, bytes_of(of_fp16)});
    if (!awq) int4_.push_back({module + ".g_idx", "I32", {cols}, bytes_of(group_of)});
  }

  static void write(const ScratchFolder& folder, const std::vector<TestTensor>& tensors, const nlohmann::json& config) {
    write_text(folder.path() / "model.safetensors", safetensors_of(tensors));
    write_text(folder.path() / "config.json", config.dump());
  }

  Int4Form form_;
  int64_t group_;
  std::string plain_, other_group_;
  SmallNetwork network_;
  std::mt19937 random_{7};
  std::vector<TestTensor> int4_, bf16_;
  ScratchFolder in_int4_, in_bf16_;
};

}  // namespace nodewright::test
