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
  static constexpr int kXPadding = 64;  // as of Bf16Weights, as are the columns of lanes
  NODEWRIGHT_DEVICE static constexpr int step_column(int step) { return step * 32; }
  static constexpr int kLaneColumns = 8;
  template <int kRows, class Load>
  struct Span;  // none: Int4Words
  // Where the 8 bytes of lane (g, t) lie of a span that begins at `column`.
  NODEWRIGHT_DEVICE static int span_byte(int column) {
    return column / 128 * 64 + lane_of_warp() % 4 * 16 + column % 128 / 8;
  }
  static constexpr int kChunksOfWord = 4;
  NODEWRIGHT_DEVICE static Eight eight(uint4 word, int chunk) {
    return {chunk == 0 ? word.x : chunk == 1 ? word.y : chunk == 2 ? word.z : word.w, 0.0f};
  }
};

// Chunk `chunk` of a word in four pairs of fp16: codes times 2^-24, exactly, and times 2^-20 in the odd pairs.
NODEWRIGHT_DEVICE uint4 halves_of_int4(uint32_t eight) {
  const uint32_t upper = eight >> 8;
  return {eight & 0x000f000fu, eight & 0x00f000f0u, upper & 0x000f000fu, upper & 0x00f000f0u};
}
NODEWRIGHT_DEVICE uint4 halves_of(Int4Weights, uint4 word, int chunk) {
  return halves_of_int4(Int4Weights::eight(word, chunk).codes);
}

// A lane's words of a span of 64 columns, half of what four lanes hold of a row's 128. load(row): its 8 bytes of W's
// row g or g + 8.
template <int kRows>
struct Int4Words {
  uint2 of[kRows / 8];

  template <class Load>
  NODEWRIGHT_DEVICE explicit Int4Words(const Load& load) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kRows / 8; ++i) of[i] = load(lane_of_warp() / 4 + 8 * i);
  }
  // Both are f(s, row), the eight codes of step s of that row: in fp16; or in bf16, exactly, minus zero(row).
  NODEWRIGHT_DEVICE auto halves() const {
    return [this](int s, int row) { return halves_of_int4(eight(s, row)); };
  }
  template <class Zero>
  NODEWRIGHT_DEVICE auto less_zeros(const Zero& zero) const {
    float zeros[kRows / 8];
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kRows / 8; ++i) zeros[i] = zero(lane_of_warp() / 4 + 8 * i);
    return [this, zeros](int s, int row) {
      const uint32_t codes = eight(s, row);
      const float of_row = zeros[row / 8];
      return uint4{pair(codes, of_row), pair(codes >> 4, of_row), pair(codes >> 8, of_row), pair(codes >> 12, of_row)};
    };
  }

 private:
  NODEWRIGHT_DEVICE uint32_t eight(int s, int row) const { return s == 0 ? of[row / 8].x : of[row / 8].y; }
  NODEWRIGHT_DEVICE static uint32_t pair(uint32_t eight, float zero) {
#ifdef __CUDACC_RTC__
    // 128 + code, whose last bit of fraction is 1; then times 1, minus 128 + zero.
    const uint32_t raised = (eight & 0x000f000fu) | 0x43004300u;
    uint32_t offsets, codes;
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(offsets) : "f"(-128.0f - zero));
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(codes) : "r"(raised), "r"(0x3f803f80u), "r"(offsets));
    return codes;
#else
    return pack_bf16(static_cast<float>(eight & 0xfu) - zero, static_cast<float>(eight >> 16 & 0xfu) - zero);
#endif
  }
};

}  // namespace nodewright
