// Weights in FP8 and held rows of x as operands in fp16, on devices that convert a pair of codes in one instruction.
// Codes are exact in fp16. A warp multiplies its columns of a row of x by a power of two that brings their norm to 2^12
// to 2^14: elements are exact down to 2^-29 of the norm, and smaller ones lose at most 2^-37 of it.
#pragma once

#include "kernels_src/product/format/fp8_weights.cuh"

namespace nodewright {

#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 890
constexpr bool kHasHalves = true;

// sums + values * values, of pairs of bf16.
NODEWRIGHT_DEVICE uint32_t add_squares(uint32_t sums, uint32_t values) {
  asm("fma.rn.bf16x2 %0, %1, %1, %0;" : "+r"(sums) : "r"(values));
  return sums;
}
// A pair of bf16 times a power of two each.
NODEWRIGHT_DEVICE uint32_t halves_of_bf16(uint32_t pair, uint32_t factors) {
  uint32_t halves;
  asm("{\n\t.reg .b32 p, q, r;\n\tfma.rn.bf16x2 p, %1, %2, %3;\n\t"
      "shl.b32 q, p, 16;\n\tand.b32 r, p, 0xffff0000;\n\tcvt.rn.f16x2.f32 %0, r, q;\n\t}"
      : "=r"(halves)
      : "r"(pair), "r"(factors), "r"(0x80008000u));
  return halves;
}
NODEWRIGHT_DEVICE uint4 halves_of_bf16(uint4 eight, uint32_t even, uint32_t odd) {
  return uint4{halves_of_bf16(eight.x, even), halves_of_bf16(eight.y, odd), halves_of_bf16(eight.z, even),
               halves_of_bf16(eight.w, odd)};
}

// As of Fp8Weights, in fp16.
template <int kRows, class Load>
using HalvesSpan = Fp8Span<kRows, &halves_of_fp8, Load>;
#else
constexpr bool kHasHalves = false;
NODEWRIGHT_DEVICE uint32_t add_squares(uint32_t sums, uint32_t) { return sums; }
NODEWRIGHT_DEVICE uint4 halves_of_bf16(uint4 eight, uint32_t, uint32_t) { return eight; }
template <int kRows, class Load>
using HalvesSpan = Fp8Weights::Span<kRows, Load>;
#endif

// Chunk `chunk` of a word: eight codes, in four pairs.
NODEWRIGHT_DEVICE uint4 halves_of(Fp8Weights, uint4 word, int chunk, const uint32_t*) {
  const EightFp8 eight = Fp8Weights::eight(word, chunk);
  const uint2 low = halves_of_fp8(eight.low), high = halves_of_fp8(eight.high);
  return {low.x, low.y, high.x, high.y};
}

}  // namespace nodewright
