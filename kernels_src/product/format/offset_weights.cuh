// Weights in codes of 4 or 8 bits with an fp16 scale and an fp16 offset for each group: scale * code + offset, as Q4_1
// and Q4_K of GGUF have them, and Q5_K.
#pragma once

#include "kernels_src/product/format/grouped_codes.cuh"

namespace nodewright {

template <class Codes, int kGroup>
struct OffsetWeights : Codes, Groups<Codes, kGroup, 4> {
  NODEWRIGHT_DEVICE static OffsetGroup group(const uint32_t* words, int g) {
    const float2 of = floats_of_halves(words[OffsetWeights::kSharedByLanes ? g : 0]);
    return {of.x, of.y};
  }
#ifdef __CUDACC_RTC__
  NODEWRIGHT_DEVICE static HalfGroup half_group(const uint32_t* words, int g) {
    const uint32_t of = words[OffsetWeights::kSharedByLanes ? g : 0];
    return {twice_low_half(of), twice_high_half(of)};
  }
#endif
};

}  // namespace nodewright
