// Weights in int4: codes of 0 to 15, laid out as weight_layout.h says, that stand for scale * (code - zero).
#pragma once

#include "kernels_src/product/format/grouped_codes.cuh"

namespace nodewright {

// The word of a group's scale and zero.
NODEWRIGHT_DEVICE float scale_of_group(uint32_t word) { return bits_to_float(word & 0xffffff00u); }
NODEWRIGHT_DEVICE float zero_of_group(uint32_t word) { return static_cast<float>(word & 0xffu); }

template <int kGroup>
struct Int4Weights : NibbleCodes, Groups<NibbleCodes, kGroup, 4> {
  NODEWRIGHT_DEVICE static ZeroGroup group(const uint32_t* words, int g) {
    return {scale_of_group(words[g]), zero_of_group(words[g])};
  }
};

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
