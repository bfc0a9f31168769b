// Groups of a row's columns that share a scale, of codes that are integers (product/format/weight_layout.h).
#pragma once

#include "kernels_src/device/numeric.cuh"

namespace nodewright {

// What a group shares. value(): a weight; joined(): sum and what a group adds to it, given the sums of its codes times
// x and of ones times x.
struct ZeroGroup {
  float scale, zero;
  NODEWRIGHT_DEVICE float value(float code) const { return (code - zero) * scale; }
  NODEWRIGHT_DEVICE float joined(float sum, float of_codes, float of_ones) const {
    return fmaf(fmaf(-zero, of_ones, of_codes), scale, sum);
  }
};
struct OffsetGroup {
  float scale, offset;
  NODEWRIGHT_DEVICE float value(float code) const { return fmaf(code, scale, offset); }
  NODEWRIGHT_DEVICE float joined(float sum, float of_codes, float of_ones) const {
    return fmaf(offset, of_ones, fmaf(of_codes, scale, sum));
  }
};

// kBytes from `from`, a multiple of that.
template <int kBytes>
NODEWRIGHT_DEVICE void load_group_words(uint32_t* to, const unsigned char* from) {
  if constexpr (kBytes == 0) {
    return;
  } else if constexpr (kBytes == 2) {
    to[0] = *reinterpret_cast<const uint16_t*>(from);
  } else if constexpr (kBytes == 4) {
    to[0] = *reinterpret_cast<const uint32_t*>(from);
  } else if constexpr (kBytes == 8) {
    const auto words = *reinterpret_cast<const uint2*>(from);
    to[0] = words.x, to[1] = words.y;
  } else {
    const uint4 words = load_16(from);
    to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
  }
}

// Groups of kGroup columns, of kBytes each. A word of 16 bytes has columns of kGroupsOfWord of them, which lie with
// those of its neighbours' words; of a span of 64 columns a lane has those of kBytesOfSpan.
template <class Codes, int kGroup, int kBytes>
struct Groups {
  static constexpr int kColumnsOfGroup = kGroup, kBytesOfGroup = kBytes;
  static constexpr int kColumnsOfGroups = Codes::kColumnsOfWords < kGroup ? kGroup : Codes::kColumnsOfWords;
  static constexpr int kGroupsOfWord = kColumnsOfGroups / kGroup;
  static constexpr int kBytesOfWord = kGroupsOfWord * kBytes;
  static constexpr int kBytesOfSpan = (Codes::kLaneColumns == 8 && kGroup < 64 ? 64 / kGroup : 1) * kBytes;
  // Four neighbouring lanes' words have one group by chunk; else each lane's word is of one of its own.
  static constexpr bool kSharedByLanes = Codes::kLaneColumns == 8;
  template <int kRows, class Load>
  struct Span;  // none: GroupedSpan and Int4Words
  static_assert(Codes::kLaneColumns == 8 ? kGroup == 32 || kGroup == 64 || kGroup == 128 : kGroup == 16 || kGroup == 32,
                "a step of 4 bits, and a lane's 16 columns of 8 bits, have one group");
};

// What a format without them has.
struct NoGroups {
  static constexpr int kColumnsOfGroups = 1, kGroupsOfWord = 1, kBytesOfWord = 0;
  static constexpr bool kSharedByLanes = false;
  NODEWRIGHT_DEVICE static ZeroGroup group(const uint32_t*, int) { return {}; }
};

}  // namespace nodewright
