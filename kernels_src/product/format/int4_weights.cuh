// Weights in int4: codes of 0 to 15, laid out as weight_layout.h says, that stand for scale * (code - zero).
#pragma once

#include "kernels_src/device/numeric.cuh"

namespace nodewright {

struct EightInt4 {
  uint32_t codes;
  float zero;
};

// sum += (codes - zero) . x over 8 elements, in order.
NODEWRIGHT_DEVICE float dot_8(EightInt4 w, const float (&x)[8], float sum) {
  NODEWRIGHT_UNROLL
  for (int p = 0; p < 4; ++p) {
    sum = fmaf(static_cast<float>(w.codes >> 4 * p & 0xfu) - w.zero, x[2 * p], sum);
    sum = fmaf(static_cast<float>(w.codes >> (4 * p + 16) & 0xfu) - w.zero, x[2 * p + 1], sum);
  }
  return sum;
}

// The word of a group's scale and zero.
NODEWRIGHT_DEVICE float scale_of_group(uint32_t word) { return bits_to_float(word & 0xffffff00u); }
NODEWRIGHT_DEVICE float zero_of_group(uint32_t word) { return static_cast<float>(word & 0xffu); }

// Two elements a byte, in memory.
struct int4_pair {
  uint8_t bits;
};

struct Int4Weights {
  using Element = int4_pair;
  using Eight = EightInt4;
  static constexpr int kElementBytes = 1, kColumnsOfElement = 2;
  static constexpr int kChunksOfWord = 4;
  NODEWRIGHT_DEVICE static Eight eight(uint4 word, int chunk) {
    return {chunk == 0 ? word.x : chunk == 1 ? word.y : chunk == 2 ? word.z : word.w, 0.0f};
  }
};

// Chunk `chunk` of a word in four pairs of fp16: codes times 2^-24, exactly, and times 2^-20 in the odd pairs.
NODEWRIGHT_DEVICE uint4 halves_of(Int4Weights, uint4 word, int chunk) {
  const uint32_t codes = Int4Weights::eight(word, chunk).codes, upper = codes >> 8;
  return {codes & 0x000f000fu, codes & 0x00f000f0u, upper & 0x000f000fu, upper & 0x00f000f0u};
}

}  // namespace nodewright
