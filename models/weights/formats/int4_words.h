// Codes of groups of a row's columns as kernels read them (kernels_src/product/format/weight_layout.h), from what
// formats store.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "kernels_src/product/format/weight_layout.h"

namespace nodewright {

inline constexpr int64_t kInt4Span = 128;  // columns that a row has a multiple of, and that share a scale at most

// int4 for kernels where `stored` columns share a scale in the checkpoint: larger groups count as several. Empty:
// kernels read no such rows or groups.
inline std::optional<WeightLayout> int4_layout_of(int64_t stored, int64_t cols) {
  if (cols % kInt4Span != 0) return {};
  const bool is_whole = stored % kInt4Span == 0 || stored >= cols;
  if (!is_whole && stored != 32 && stored != 64) return {};
  return WeightLayout{.code = WeightCode::int4, .group = is_whole ? kInt4Span : stored};
}

// The scale, rounded to 16 bits of mantissa, and in the lowest byte the zero.
inline uint32_t int4_scale_word(float scale, uint8_t zero) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const uint32_t rounded = std::isnan(scale) ? bits | 0x00400000u : bits + 0x7fu + (bits >> 8 & 1u);
  return (rounded & 0xffffff00u) | zero;
}

// A row of codes, a byte each. `to`: half as many bytes.
inline void pack_int4_row(std::span<const uint8_t> codes, std::byte* to) {
  constexpr uint64_t kEven = 0x000f000f000f000f;
  const auto side_by_side = [](uint64_t four) {  // codes in bytes 0, 2, 4 and 6
    four = (four | four >> 12) & 0x000000ff000000ff;
    return static_cast<uint32_t>((four | four >> 24) & 0xffff);
  };
  for (size_t span = 0; span < codes.size(); span += kInt4Span, to += kInt4Span / 2)
    for (size_t lane = 0; lane < 4; ++lane)
      for (size_t piece = 0; piece < 4; ++piece) {
        uint64_t eight;
        std::memcpy(&eight, codes.data() + span + 32 * piece + 8 * lane, sizeof eight);
        const uint32_t word = side_by_side(eight & kEven) | side_by_side(eight >> 8 & kEven) << 16;
        std::memcpy(to + 16 * lane + 4 * piece, &word, sizeof word);
      }
}

}  // namespace nodewright
