// Numbers for kernel tests: noise that depends on its place only, and bf16 rounding by arithmetic on doubles.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels_src/args.h"

namespace nodewright::test {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// SplitMix64 of (stream, index) (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
inline uint64_t random_bits(uint64_t stream, uint64_t index) {
  uint64_t z = stream * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Uniform in (-1, 1).
inline double noise(uint64_t stream, uint64_t index) {
  return (static_cast<double>(random_bits(stream, index) >> 11) + 0.5) * 0x1p-52 - 1.0;
}

inline float value_of(bf16 v) {
  const uint32_t bits = static_cast<uint32_t>(v.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The value of an e4m3: a sign, four bits of exponent with a bias of 7, three of fraction.
inline double value_of_fp8(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double size = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (code & 0x80) != 0 ? -size : size;
}

// Where weight_layout.h (kernels_src/product/format) has the int4 code of a row's column: in which word of 32 bits of
// the row, and from which bit on.
struct Int4Place {
  int64_t word;
  int bit;
};
inline Int4Place int4_place(int64_t column) {
  const int64_t in_span = column % 128, piece = in_span / 32, lane = in_span % 32 / 8, of_piece = column % 8;
  return {column / 128 * 16 + lane * 4 + piece, static_cast<int>(of_piece / 2 * 4 + of_piece % 2 * 16)};
}

// The word of a group, of a scale whose last 8 bits go and of any zero that there is.
inline uint32_t int4_group(double scale, uint64_t any_zero) {
  const auto single = static_cast<float>(scale);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  return (bits & 0xffffff00u) | static_cast<uint32_t>(any_zero % 17);
}
inline double int4_zero(uint32_t group) { return group & 0xff; }
inline double int4_scale(uint32_t group) {
  const uint32_t bits = group & 0xffffff00u;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return scale;
}
inline double value_of_int4(uint32_t code, uint32_t group) { return int4_scale(group) * (code - int4_zero(group)); }

// The nearest bf16, ties to even: 8 significant bits, exponents down to the subnormals' 2^-133, infinity from 2^128.
inline double rounded_to_bf16(double v) {
  if (!std::isfinite(v) || v == 0.0) return v;
  int exponent;
  std::frexp(v, &exponent);
  const int unit = std::max(exponent - 8, -133);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(v, -unit)), unit);
  return std::abs(rounded) >= 0x1p128 ? std::copysign(static_cast<double>(kInfinity), v) : rounded;
}

inline bf16 to_bf16(double v) {
  const auto value = static_cast<float>(rounded_to_bf16(v));
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return {static_cast<uint16_t>(bits >> 16)};
}

}  // namespace nodewright::test
