// Codes of groups of a row's columns as kernels read them (kernels_src/product/format/weight_layout.h), from what
// formats store.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

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

// Codes with groups that any matrix in `a` or `b` can be brought to: their codes and offset_words(). Empty: none are.
inline std::optional<WeightLayout> common_layout(const WeightLayout& a, const WeightLayout& b) {
  if (a == b) return a;
  if (a.is_int4() || b.is_int4()) return {};  // whose scales are beyond fp16
  return WeightLayout{.code = WeightCode::q8_offset, .group = std::min(a.group, b.group)};
}
// What groups share in `from`, a layout with fp16 scales, as scales and offsets of groups of `group` columns.
inline std::vector<uint32_t> offset_words(std::span<const uint32_t> words, const WeightLayout& from, int64_t group) {
  const bool has_offsets = from.group_bytes() == 4;
  const float zero = from.has_nibbles() ? 8 : 128;
  std::vector<uint32_t> all;
  for (size_t i = 0; i < words.size() * (has_offsets ? 1 : 2); ++i) {
    uint32_t word = has_offsets ? words[i] : words[i / 2] >> i % 2 * 16 & 0xffffu;
    if (!has_offsets) {
      const auto scale = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(word)));
      word |= uint32_t{std::bit_cast<uint16_t>(static_cast<_Float16>(-zero * scale))} << 16;
    }
    all.insert(all.end(), static_cast<size_t>(from.group / group), word);
  }
  return all;
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
