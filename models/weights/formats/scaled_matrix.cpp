#include "models/weights/formats/scaled_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "models/weights/formats/int4_words.h"
#include "models/weights/formats/packed_codes.h"
#include "models/weights/formats/stored_tensor.h"

namespace nodewright {
namespace {

std::vector<const TensorInfo*> present(std::initializer_list<const TensorInfo*> tensors) {
  std::vector<const TensorInfo*> found;
  for (const TensorInfo* tensor : tensors)
    if (tensor != nullptr) found.push_back(tensor);
  return found;
}

class ScaledMatrix : public EncodedMatrix {
 public:
  ScaledMatrix(std::string format, const ScaledParts& p)
      : EncodedMatrix(std::move(format), present({p.codes, p.scales, p.zeros, p.groups, p.global, p.whole_shape})),
        p_(p) {
    if (p_.whole_shape != nullptr) check_shape();
  }

  void decode(int64_t first, int64_t rows, std::span<float> to) const override {
    const auto cols = static_cast<size_t>(p_.cols), grid_cols = static_cast<size_t>(p_.grid_cols());
    const int64_t first_grid = first / p_.block_rows, end_grid = (first + rows - 1) / p_.block_rows + 1;
    const std::vector<float> scales = scales_of(first_grid, end_grid), zeros = zeros_of(first_grid, end_grid);
    const std::vector<int32_t> groups = groups_of();
    const uint64_t row_bytes = p_.codes->bytes / static_cast<uint64_t>(p_.rows);
    std::vector<std::byte> codes(static_cast<uint64_t>(rows) * row_bytes);
    p_.codes->file->read(p_.codes->offset + static_cast<uint64_t>(first) * row_bytes, codes);
    std::vector<uint8_t> unpacked(p_.kind == CodeKind::packed ? row_bytes * 8 / static_cast<uint64_t>(p_.bits) : 0);
    for (int64_t row = 0; row < rows; ++row) {
      const std::byte* stored = codes.data() + static_cast<uint64_t>(row) * row_bytes;
      if (p_.kind == CodeKind::packed) {
        unpack(stored, unpacked);
        stored = reinterpret_cast<const std::byte*>(unpacked.data());
      }
      const std::span<float> out = to.subspan(static_cast<size_t>(row) * cols, cols);
      const size_t grid = static_cast<size_t>((first + row) / p_.block_rows - first_grid) * grid_cols;
      const float* const zero = zeros.empty() ? nullptr : zeros.data() + grid;
      if (!groups.empty()) {
        scale(stored, 0, 0, 1, out);
        for (size_t c = 0; c < cols; ++c) {
          const auto group = static_cast<size_t>(groups[c]);
          out[c] = (out[c] - (zero ? zero[group] : 0)) * scales[grid + group];
        }
        continue;
      }
      const auto block = static_cast<size_t>(p_.block_cols);
      for (size_t group = 0; group < grid_cols; ++group) {
        const size_t begin = group * block, end = std::min(begin + block, cols);
        scale(stored, begin, zero ? zero[group] : 0, scales[grid + group], out.subspan(begin, end - begin));
      }
    }
  }

  std::optional<ScaleBlock> fp8_block() const override {
    if (p_.kind != CodeKind::e4m3 || p_.zeros != nullptr || p_.groups != nullptr) return {};
    return ScaleBlock{p_.block_rows, p_.block_cols};
  }
  std::vector<float> fp8_scales(int64_t first, int64_t end) const override { return scales_of(first, end); }

  std::optional<WeightLayout> group_layout() const override {
    if (p_.kind != CodeKind::packed || p_.bits != 4 || !groups_of().empty()) return {};
    return int4_layout_of(p_.block_cols, p_.cols);
  }
  void group_codes(int64_t first, int64_t rows, std::span<uint8_t> to) const override {
    std::vector<std::byte> words(static_cast<uint64_t>(rows * p_.cols / 2));
    p_.codes->file->read(p_.codes->offset + static_cast<uint64_t>(first * p_.cols / 2), words);
    unpack(words.data(), to);
  }
  std::vector<uint32_t> group_words(int64_t first, int64_t rows) const override {
    const int64_t group = int4_layout_of(p_.block_cols, p_.cols)->group, grid_cols = p_.grid_cols();
    const int64_t first_grid = first / p_.block_rows, end_grid = (first + rows - 1) / p_.block_rows + 1;
    const std::vector<float> scales = scales_of(first_grid, end_grid), zeros = zeros_of(first_grid, end_grid);
    std::vector<uint32_t> words;
    words.reserve(static_cast<size_t>(rows * (p_.cols / group)));
    for (int64_t row = first; row < first + rows; ++row)
      for (int64_t col = 0; col < p_.cols; col += group) {
        const auto at = static_cast<size_t>((row / p_.block_rows - first_grid) * grid_cols + col / p_.block_cols);
        const float zero = zeros.empty() ? 0 : zeros[at];
        words.push_back(int4_scale_word(scales[at], static_cast<uint8_t>(zero + 8)));
      }
    return words;
  }

 private:
  void check_shape() const {
    int64_t shape[2] = {};
    if (p_.whole_shape->dtype == Dtype::kI64) {
      read_elements(*p_.whole_shape, 0, std::span(shape));
    } else {
      int32_t narrow[2] = {};
      read_elements(*p_.whole_shape, 0, std::span(narrow));
      std::ranges::copy(narrow, shape);
    }
    if (shape[0] != p_.rows || shape[1] != p_.cols)
      refuse_stored(*p_.whole_shape, fmt::format("it says [{}, {}], the network's matrix is [{}, {}]", shape[0],
                                                 shape[1], p_.rows, p_.cols));
  }

  std::vector<float> scales_of(int64_t first, int64_t end) const {
    const auto grid_cols = static_cast<uint64_t>(p_.grid_cols());
    std::vector<float> scales(static_cast<uint64_t>(end - first) * grid_cols);
    read_values(*p_.scales, static_cast<uint64_t>(first) * grid_cols, scales);
    if (p_.global == nullptr) return scales;
    float global = 0;
    read_elements(*p_.global, 0, std::span(&global, 1));
    for (float& scale : scales) scale = p_.global_divides ? scale / global : scale * global;
    return scales;
  }

  // Those of rows [first, end) of the grid; empty where all are zero.
  std::vector<float> zeros_of(int64_t first, int64_t end) const {
    if (p_.zeros == nullptr) return {};
    const auto grid_cols = static_cast<uint64_t>(p_.grid_cols());
    const auto first_row = static_cast<uint64_t>(first), rows = static_cast<uint64_t>(end - first);
    std::vector<float> zeros(rows * grid_cols);
    if (p_.zeros->dtype == Dtype::kI8) {
      std::vector<int8_t> stored(zeros.size());
      read_elements(*p_.zeros, first_row * grid_cols, std::span(stored));
      std::ranges::copy(stored, zeros.begin());
      const int half = 1 << (p_.bits - 1);  // a zero is one of the codes
      for (size_t i = 0; p_.kind == CodeKind::packed && i < stored.size(); ++i)
        if (stored[i] < -half || stored[i] >= half)
          refuse_stored(*p_.zeros, fmt::format("row {} has the zero {}, expected {} to {}",
                                               (first_row + i / grid_cols) * static_cast<uint64_t>(p_.block_rows),
                                               stored[i], -half, half - 1));
      return zeros;
    }
    const auto in_word = static_cast<uint64_t>(p_.codes_of_word());
    const uint64_t first_word = first_row / in_word, end_word = (first_row + rows - 1) / in_word + 1;
    std::vector<uint32_t> words((end_word - first_word) * grid_cols);
    read_elements(*p_.zeros, first_word * grid_cols, std::span(words));
    for (uint64_t row = 0; row < rows; ++row)
      for (uint64_t col = 0; col < grid_cols; ++col) {
        const uint32_t word = words[((first_row + row) / in_word - first_word) * grid_cols + col];
        zeros[row * grid_cols + col] = code_of(word, (first_row + row) % in_word);
      }
    return zeros;
  }

  // The block of each column; empty where they are in order. Minus one everywhere says so, too.
  std::vector<int32_t> groups_of() const {
    if (p_.groups == nullptr) return {};
    std::vector<int32_t> groups(static_cast<size_t>(p_.cols));
    read_elements(*p_.groups, 0, std::span(groups));
    if (std::ranges::all_of(groups, [](int32_t group) { return group == -1; })) return {};
    bool in_order = true;
    for (size_t c = 0; c < groups.size(); ++c) {
      if (groups[c] < 0 || groups[c] >= p_.grid_cols())
        refuse_stored(*p_.groups,
                      fmt::format("element {} is {}, expected a group from 0 to {}", c, groups[c], p_.grid_cols() - 1));
      in_order = in_order && groups[c] == static_cast<int64_t>(c) / p_.block_cols;
    }
    return in_order ? std::vector<int32_t>() : groups;
  }

  float code_of(uint32_t word, uint64_t place) const {
    const auto bits = static_cast<unsigned>(p_.bits);
    const uint32_t code = word >> (place * bits) & ((1u << bits) - 1);
    return static_cast<float>(static_cast<int32_t>(code) - (1 << (bits - 1)));
  }

  void unpack(const std::byte* row, std::span<uint8_t> to) const {
    const auto in_word = static_cast<size_t>(p_.codes_of_word());
    for (size_t c = 0; c < to.size(); c += in_word, row += sizeof(uint32_t)) {
      uint32_t word;
      std::memcpy(&word, row, sizeof word);
      unpack_word(word, static_cast<unsigned>(p_.bits), to.data() + c);
    }
  }

  // (code - zero) * scale of columns [begin, begin + to.size()) of a row; of packed codes, unpack() has made bytes.
  void scale(const std::byte* row, size_t begin, float zero, float scale, std::span<float> to) const {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(row);
    if (p_.kind == CodeKind::packed) {
      scale_codes(std::span(bytes + begin, to.size()), zero + static_cast<float>(1 << (p_.bits - 1)), scale, to.data());
    } else if (p_.kind == CodeKind::int8) {
      scale_codes(std::span(reinterpret_cast<const int8_t*>(bytes) + begin, to.size()), zero, scale, to.data());
    } else if (p_.kind == CodeKind::e4m3) {
      const float* const values = values_of_e4m3().data();
      for (size_t c = 0; c < to.size(); ++c) to[c] = values[bytes[begin + c]] * scale;
    } else {
      const float* const values = values_of_e2m1().data();
      for (size_t c = 0, at = begin; c < to.size(); ++c, ++at)
        to[c] = values[(bytes[at / 2] >> (at % 2 * 4)) & 15] * scale;
    }
  }

  ScaledParts p_;
};

}  // namespace

std::unique_ptr<EncodedMatrix> scaled_matrix(std::string format, const ScaledParts& parts) {
  return std::make_unique<ScaledMatrix>(std::move(format), parts);
}

}  // namespace nodewright
