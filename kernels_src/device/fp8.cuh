// FP8, e4m3: a sign, four bits of exponent (bias 7), three of fraction; no infinity, and one NaN.
#pragma once

#include "kernels_src/device/numeric.cuh"

namespace nodewright {

// One element a byte, in memory. It has no arithmetic.
struct fp8 {
  uint8_t bits;
};

// Round to nearest even; what is larger than 448 becomes 448, infinity, too; NaN stays NaN.
NODEWRIGHT_DEVICE fp8 to_fp8(float v) {
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 890
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(v));
  return fp8{static_cast<uint8_t>(pair)};
#else
  const uint32_t bits = float_to_bits(v), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  uint32_t code;
  if (magnitude >= 0x43e00000u)  // 448
    code = magnitude > 0x7f800000u ? 0x7fu : 0x7eu;
  else if (magnitude < 0x3c800000u)  // below 2^-6: in units of 2^-9, which are the last bits of 2^14 + v
    code = float_to_bits(bits_to_float(magnitude) + 0x1p14f) - 0x46800000u;
  else
    code = (magnitude - (120u << 23) + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
  return fp8{static_cast<uint8_t>(sign | code)};
#endif
}

NODEWRIGHT_DEVICE float to_float(fp8 v) {
  if ((v.bits & 0x7fu) == 0x7fu) return bits_to_float(0x7fffffffu);
  return bits_to_float((v.bits & 0x80u) << 24 | (v.bits & 0x7fu) << 20) * 0x1p120f;  // from a bias of 127 to one of 7
}

// Four elements to two pairs of fp16, exactly. Before compute capability 8.9 the code of a NaN is 480.
NODEWRIGHT_DEVICE uint2 halves_of_fp8(uint32_t four) {
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 890
  uint2 pairs;
  asm("{\n\t.reg .b16 p, q;\n\tmov.b32 {p, q}, %2;\n\t"
      "cvt.rn.f16x2.e4m3x2 %0, p;\n\tcvt.rn.f16x2.e4m3x2 %1, q;\n\t}"
      : "=r"(pairs.x), "=r"(pairs.y)
      : "r"(four));
  return pairs;
#elif defined(__CUDACC_RTC__)
  // Their bits in the places of fp16's are the value times 2^-8.
  const auto pair_of = [](uint32_t upper_bytes) {
    const uint32_t small = (upper_bytes >> 1 & 0x3f803f80u) | (upper_bytes & 0x80008000u);
    uint32_t pair;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(small), "r"(0x5c005c00u));
    return pair;
  };
  return {pair_of(__byte_perm(four, 0u, 0x1404u)), pair_of(__byte_perm(four, 0u, 0x3424u))};
#else
  const auto pair_of = [](uint32_t two) {
    const auto bits = [](uint32_t byte) {
      return static_cast<uint32_t>(to_fp16(to_float(fp8{static_cast<uint8_t>(byte)})).bits);
    };
    return bits(two) | bits(two >> 8) << 16;
  };
  return {pair_of(four), pair_of(four >> 16)};
#endif
}

}  // namespace nodewright
