// bfloat16 and packed-vector arithmetic, without any CUDA header.
#pragma once

#include "kernels_src/device/dialect.cuh"

namespace nodewright {

NODEWRIGHT_DEVICE float bits_to_float(uint32_t bits) {
#ifdef __CUDACC_RTC__
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

NODEWRIGHT_DEVICE uint32_t float_to_bits(float v) {
#ifdef __CUDACC_RTC__
  return __float_as_uint(v);
#else
  return __builtin_bit_cast(uint32_t, v);
#endif
}

// v times a factor that a constant holds as the bits of a float; 0: as it is.
template <int64_t kFactor>
NODEWRIGHT_DEVICE float scaled_by(float v) {
  if constexpr (kFactor == 0) return v;
  return v * bits_to_float(static_cast<uint32_t>(kFactor));
}
// cap * tanh(v / cap), with the cap as the bits of a float; 0: v.
template <int64_t kCap>
NODEWRIGHT_DEVICE float capped_by(float v) {
  if constexpr (kCap == 0) return v;
  const float cap = bits_to_float(static_cast<uint32_t>(kCap));
  return cap * (1.0f - 2.0f / (exp2f(v * (2.8853900817779268f / cap)) + 1.0f));  // 2 log2(e)
}

NODEWRIGHT_DEVICE float to_float(bf16 v) { return bits_to_float(static_cast<uint32_t>(v.bits) << 16); }

// Round to nearest even; NaN stays NaN.
NODEWRIGHT_DEVICE bf16 to_bf16(float v) {
  const uint32_t bits = float_to_bits(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return bf16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// IEEE 754 binary16: 1 sign, 5 exponent (bias 15) and 10 fraction bits. In integers, so that both compilers agree.
NODEWRIGHT_DEVICE float to_float(fp16 v) {
  const uint32_t sign = static_cast<uint32_t>(v.bits & 0x8000u) << 16, exponent = (v.bits >> 10) & 31u;
  const uint32_t fraction = v.bits & 0x3ffu;
  if (exponent == 0) return bits_to_float(sign | float_to_bits(static_cast<float>(fraction) * 0x1p-24f));
  if (exponent == 31) return bits_to_float(sign | 0x7f800000u | fraction << 13);
  return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
}

// Round to nearest even; from 65520 on infinity; NaN stays NaN.
NODEWRIGHT_DEVICE fp16 to_fp16(float v) {
  const uint32_t bits = float_to_bits(v), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude >= 0x47800000u)  // 2^16
    half = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  else if (magnitude < 0x38800000u)  // below 2^-14: a subnormal, in units of 2^-24, which are the last bits of 0.5 + v
    half = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000u;
  else
    half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  return fp16{static_cast<uint16_t>(sign | half)};
}

// Two bf16 packed in a 32-bit word, the lower address in the lower half.
NODEWRIGHT_DEVICE float low_bf16(uint32_t pair) { return bits_to_float(pair << 16); }
NODEWRIGHT_DEVICE float high_bf16(uint32_t pair) { return bits_to_float(pair & 0xffff0000u); }
NODEWRIGHT_DEVICE uint32_t pack_bf16(float low, float high) {
  return static_cast<uint32_t>(to_bf16(low).bits) | static_cast<uint32_t>(to_bf16(high).bits) << 16;
}

// Eight packed bf16 to fp32.
NODEWRIGHT_DEVICE void unpack_8(uint4 v, float (&f)[8]) {
  f[0] = low_bf16(v.x), f[1] = high_bf16(v.x), f[2] = low_bf16(v.y), f[3] = high_bf16(v.y);
  f[4] = low_bf16(v.z), f[5] = high_bf16(v.z), f[6] = low_bf16(v.w), f[7] = high_bf16(v.w);
}

// sum += w . x over 8 elements, in order.
NODEWRIGHT_DEVICE float dot_8(uint4 w, const float (&x)[8], float sum) {
  sum = fmaf(low_bf16(w.x), x[0], sum);
  sum = fmaf(high_bf16(w.x), x[1], sum);
  sum = fmaf(low_bf16(w.y), x[2], sum);
  sum = fmaf(high_bf16(w.y), x[3], sum);
  sum = fmaf(low_bf16(w.z), x[4], sum);
  sum = fmaf(high_bf16(w.z), x[5], sum);
  sum = fmaf(low_bf16(w.w), x[6], sum);
  sum = fmaf(high_bf16(w.w), x[7], sum);
  return sum;
}

// The compiler no longer knows what `v` was made from, nor that it is the same as a turn of the loop before.
NODEWRIGHT_DEVICE void forget_origin([[maybe_unused]] uint4& v) {
#ifdef __CUDACC_RTC__
  asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
#endif
}

// 16 bytes of memory that an earlier node wrote, or that this one writes; 16-byte aligned.
NODEWRIGHT_DEVICE uint4 load_16(const void* address) {
#ifndef __CUDACC_RTC__
  emulation::require_aligned(address, 16);
#endif
  return *static_cast<const uint4*>(address);
}
// The same of a Settled or SettledInOut field, as load_settled.
NODEWRIGHT_DEVICE uint4 load_settled_16(const void* address) {
#ifdef __CUDACC_RTC__
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
#else
  return load_16(address);
#endif
}
// Four floats; 16-byte aligned.
NODEWRIGHT_DEVICE float4 load_fp32_4(const float* address) {
  const uint4 v = load_16(address);
  return make_float4(bits_to_float(v.x), bits_to_float(v.y), bits_to_float(v.z), bits_to_float(v.w));
}
NODEWRIGHT_DEVICE void store_16(void* address, uint4 v) {
#ifndef __CUDACC_RTC__
  emulation::require_aligned(address, 16);
#endif
  *static_cast<uint4*>(address) = v;
}
NODEWRIGHT_DEVICE void store_fp32_4(float* address, float4 v) {
  store_16(address, uint4{float_to_bits(v.x), float_to_bits(v.y), float_to_bits(v.z), float_to_bits(v.w)});
}
// Eight floats; 16-byte aligned.
NODEWRIGHT_DEVICE void store_fp32_8(float* address, const float (&v)[8]) {
  store_16(address, uint4{float_to_bits(v[0]), float_to_bits(v[1]), float_to_bits(v[2]), float_to_bits(v[3])});
  store_16(address + 4, uint4{float_to_bits(v[4]), float_to_bits(v[5]), float_to_bits(v[6]), float_to_bits(v[7])});
}

}  // namespace nodewright
