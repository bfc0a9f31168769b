// Weights in codes of 0 to 255 with an fp16 scale for each group: scale * (code - 128), as Q8_0 of GGUF has them, and
// Q6_K, whose groups have 16 columns.
#pragma once

#include "kernels_src/product/format/grouped_codes.cuh"

namespace nodewright {

template <int kGroup>
struct Q8Weights : ByteCodes, Groups<ByteCodes, kGroup, 2> {
  NODEWRIGHT_DEVICE static ZeroGroup group(const uint32_t* words, int) {
    return {floats_of_halves(words[0]).x, 128.0f};
  }
#ifdef __CUDACC_RTC__
  NODEWRIGHT_DEVICE static HalfGroup half_group(const uint32_t* words, int) {
    const uint32_t scale = twice_low_half(words[0]);
    return {scale, fma_halves(scale, 0xd800d800u, 0x80008000u)};  // times -128
  }
#endif
};

}  // namespace nodewright
