// Weights in FP8, e4m3: a sign, four bits of exponent (bias 7), three of fraction; no infinity. Loading refuses the
// code of a NaN, so none is here.
#pragma once

#include "kernels_src/device/fp8.cuh"
#include "kernels_src/product/format/groups.cuh"

namespace nodewright {

struct alignas(8) EightFp8 {
  uint32_t low, high;
};

// Four elements to fp32, exactly.
NODEWRIGHT_DEVICE void unpack_fp8_4(uint32_t four, float (&f)[4]) {
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 890
  asm("{\n\t.reg .b16 p, q;\n\t.reg .b32 u, v;\n\t"
      "mov.b32 {p, q}, %4;\n\tcvt.rn.f16x2.e4m3x2 u, p;\n\tcvt.rn.f16x2.e4m3x2 v, q;\n\t"
      "mov.b32 {p, q}, u;\n\tcvt.f32.f16 %0, p;\n\tcvt.f32.f16 %1, q;\n\t"
      "mov.b32 {p, q}, v;\n\tcvt.f32.f16 %2, p;\n\tcvt.f32.f16 %3, q;\n\t}"
      : "=f"(f[0]), "=f"(f[1]), "=f"(f[2]), "=f"(f[3])
      : "r"(four));
#else
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t byte = four >> 8 * i;
    f[i] = bits_to_float((byte & 0x80u) << 24 | (byte & 0x7fu) << 20) * 0x1p120f;  // from a bias of 127 to one of 7
  }
#endif
}

// sum += w . x over 8 elements, in order.
NODEWRIGHT_DEVICE float dot_8(EightFp8 w, const float (&x)[8], float sum) {
  float low[4], high[4];
  unpack_fp8_4(w.low, low);
  unpack_fp8_4(w.high, high);
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 4; ++i) sum = fmaf(low[i], x[i], sum);
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 4; ++i) sum = fmaf(high[i], x[4 + i], sum);
  return sum;
}

// The elements in the upper bytes of both halves to a pair of bf16, exactly. Their bits in the places of bf16's are the
// value times 2^-120.
NODEWRIGHT_DEVICE uint32_t bf16_of_upper_bytes(uint32_t bytes) {
  const uint32_t small = (bytes >> 4 & 0x07f007f0u) | (bytes & 0x80008000u);
#ifdef __CUDACC_RTC__
  uint32_t pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(small), "r"(0x7b807b80u), "r"(0x80008000u));
  return pair;
#else
  return pack_bf16(low_bf16(small) * 0x1p120f, high_bf16(small) * 0x1p120f);
#endif
}
NODEWRIGHT_DEVICE uint32_t low_pair_of_fp8(uint32_t four) {
#ifdef __CUDACC_RTC__
  return bf16_of_upper_bytes(__byte_perm(four, 0u, 0x1404u));
#else
  return bf16_of_upper_bytes((four & 0xffu) << 8 | (four & 0xff00u) << 16);
#endif
}
NODEWRIGHT_DEVICE uint32_t high_pair_of_fp8(uint32_t four) {
#ifdef __CUDACC_RTC__
  return bf16_of_upper_bytes(__byte_perm(four, 0u, 0x3424u));
#else
  return bf16_of_upper_bytes((four >> 8 & 0xff00u) | (four & 0xff000000u));
#endif
}

// Four elements as two pairs of bf16.
NODEWRIGHT_DEVICE uint2 bf16_pairs_of_fp8(uint32_t four) { return {low_pair_of_fp8(four), high_pair_of_fp8(four)}; }

// A lane's words of a span, 16 columns, eight of each step. kPairs: four elements to two pairs of an operand.
template <int kRows, uint2 (*kPairs)(uint32_t), class Load>
struct Fp8Span {
  uint4 words[kRows / 8];
  NODEWRIGHT_DEVICE explicit Fp8Span(const Load& load) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kRows / 8; ++i) words[i] = load(0, lane_of_warp() / 4 + 8 * i);
  }
  NODEWRIGHT_DEVICE uint4 operator()(int s, int row) const {
    const uint4 w = words[row / 8];
    const uint2 first = kPairs(s == 0 ? w.x : w.z), second = kPairs(s == 0 ? w.y : w.w);
    return uint4{first.x, first.y, second.x, second.y};
  }
};

// Asks for the line of L1 at the address.
NODEWRIGHT_DEVICE void prefetch_line([[maybe_unused]] const float* address) {
#ifdef __CUDACC_RTC__
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
#endif
}

NODEWRIGHT_DEVICE void prefetch_to_l2([[maybe_unused]] const float* address) {
#ifdef __CUDACC_RTC__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

struct Fp8Weights : NoGroups {
  using Element = fp8;
  using Eight = EightFp8;  // eight elements of a row
  static constexpr int kElementBytes = 1, kColumnsOfElement = 1;
  // Between rows of x in shared memory beside a multiple of 128: a lane reads 32 bytes of its row, in two steps.
  static constexpr int kXPadding = 16;

  static constexpr int kChunksOfWord = 2;
  NODEWRIGHT_DEVICE static Eight eight(uint4 word, int chunk) {
    return chunk == 0 ? EightFp8{word.x, word.y} : EightFp8{word.z, word.w};
  }

  // As of Bf16Weights. A word is 16 columns, eight of each step.
  NODEWRIGHT_DEVICE static constexpr int step_column(int step) { return step / 2 * 64 + step % 2 * 8; }
  static constexpr int kLaneColumns = 16;
  template <int kRows, class Load>
  using Span = Fp8Span<kRows, &bf16_pairs_of_fp8, Load>;
};

}  // namespace nodewright
