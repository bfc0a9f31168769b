// Matrices in codes with groups (kernels_src/product/format/weight_layout.h): any codes, with any scales, zeros and
// offsets, and the values that these stand for.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels_src/product/format/weight_layout.h"
#include "tests/kernels/numbers.h"

namespace nodewright::test {

struct DrawnGroups {
  std::vector<uint8_t> bytes;  // what no element and no group has is 0xff
  std::vector<double> values;  // [rows, stride]
  std::vector<double> parts;   // [rows, stride]: the magnitudes of what a code and a zero or an offset add, both

  // Values of about `size` at most.
  DrawnGroups(const WeightLayout& layout, int64_t rows, int64_t stride, double size) : layout_(layout) {
    bytes.assign(at(layout.bytes(rows, stride)), 0xff);
    values.resize(at(rows * stride)), parts.resize(at(rows * stride));
    std::memset(bytes.data(), 0, at(rows * layout.row_bytes(stride)));
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < stride; ++k) {
        const size_t element = at(n * stride + k), group = element / at(layout.group);
        const auto code = static_cast<uint8_t>(random_bits(2, element) & (layout.has_nibbles() ? 15 : 255));
        if (k % layout.group == 0) draw_group(group, size);
        put(n * layout.row_bytes(stride), k, code);
        if (k % layout.group == 0) {
          uint8_t* const of_row = bytes.data() + rows * layout.row_bytes(stride) + n * 4 * layout.group_stride(stride);
          std::memcpy(of_row + k / layout.group * layout.group_bytes(), &word_, at(layout.group_bytes()));
        }
        values[element] = scale_ * (code - zero_) + offset_;
        parts[element] = std::abs(scale_) * (code + zero_) + std::abs(offset_);
      }
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  static double half(double value, uint16_t& bits) {
    const auto rounded = static_cast<_Float16>(value);
    std::memcpy(&bits, &rounded, sizeof bits);
    return static_cast<double>(rounded);
  }
  void draw_group(size_t group, double size) {
    const double scale = size / (layout_.has_nibbles() ? 8 : 128) * noise(6, group);
    zero_ = 0, offset_ = -0.0;  // which leaves the sign of a zero
    if (layout_.is_int4()) {
      word_ = int4_group(scale, random_bits(7, group));
      scale_ = int4_scale(word_), zero_ = int4_zero(word_);
      return;
    }
    uint16_t halves[2] = {};
    scale_ = half(scale, halves[0]);
    if (layout_.group_bytes() == 4)
      offset_ = half(size * noise(7, group), halves[1]);
    else
      zero_ = layout_.has_nibbles() ? 8 : 128;
    std::memcpy(&word_, halves, sizeof word_);
  }
  void put(int64_t row, int64_t column, uint8_t code) {
    if (!layout_.has_nibbles()) {
      bytes[at(row + column)] = code;
      return;
    }
    const Int4Place place = int4_place(column);
    bytes[at(row + place.word * 4 + place.bit / 8)] |= static_cast<uint8_t>(code << place.bit % 8);
  }

  const WeightLayout& layout_;
  uint32_t word_ = 0;
  double scale_ = 0, zero_ = 0, offset_ = 0;  // of the last group
};

}  // namespace nodewright::test
