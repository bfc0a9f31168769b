// Weights in codes of 0 to 15 with an fp16 scale for each group, as Q4_0 of GGUF has them: scale * (code - 8).
#pragma once

#include "kernels_src/product/format/grouped_codes.cuh"

namespace nodewright {

template <int kGroup>
struct Q4Weights : NibbleCodes, Groups<NibbleCodes, kGroup, 2> {
  NODEWRIGHT_DEVICE static ZeroGroup group(const uint32_t* words, int g) {
    const float2 scales = floats_of_halves(words[g / 2]);
    return {g % 2 == 0 ? scales.x : scales.y, 8.0f};
  }
#ifdef __CUDACC_RTC__
  NODEWRIGHT_DEVICE static HalfGroup half_group(const uint32_t* words, int g) {
    const uint32_t scale = g % 2 == 0 ? twice_low_half(words[g / 2]) : twice_high_half(words[g / 2]);
    return {scale, fma_halves(scale, 0xc800c800u, 0x80008000u)};  // times -8
  }
#endif
};

}  // namespace nodewright
