// Weights in codes of 4 or 8 bits with an fp16 scale and an fp16 offset for each group: scale * code + offset, as Q4_1
// and Q4_K of GGUF have them, and Q5_K.
#pragma once

#include "kernels_src/product/format/grouped_codes.cuh"

namespace nodewright {

template <class Codes, int kGroup>
struct OffsetWeights : Codes, Groups<Codes, kGroup, 4> {
  static constexpr bool kOfLane = Codes::kLaneColumns == 16;  // a lane has one group of a span

  NODEWRIGHT_DEVICE static OffsetGroup group(const uint32_t* words, int g) {
    const float2 of = floats_of_halves(words[kOfLane ? 0 : g]);
    return {of.x, of.y};
  }
#ifdef __CUDACC_RTC__
  NODEWRIGHT_DEVICE static HalfGroup half_group(const uint32_t* words, int g) {
    return {twice_low_half(words[kOfLane ? 0 : g]), twice_high_half(words[kOfLane ? 0 : g])};
  }
#endif
};

}  // namespace nodewright
