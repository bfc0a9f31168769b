// The elements of a cache in tests: bf16 as they are; of FP8 the values of codes, which bf16 has exactly, and the codes
// themselves where a kernel reads them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "kernels_src/attention/kv_pages.h"
#include "tests/kernels/numbers.h"

namespace nodewright::test {

// Round to nearest even by arithmetic on doubles: 4 significant bits, exponents down to the subnormals' 2^-9; what is
// larger than 448 becomes 448.
inline double rounded_to_fp8(double v) {
  if (std::isnan(v) || v == 0.0) return v;
  if (std::abs(v) >= 448) return std::copysign(448.0, v);
  int exponent;
  std::frexp(v, &exponent);
  const int unit = std::max(exponent - 4, -9);
  return std::ldexp(std::nearbyint(std::ldexp(v, -unit)), unit);
}

// The code of a value that is one.
inline uint8_t fp8_code(double v) {
  if (std::isnan(v)) return 0x7f;
  const auto found = [&](uint8_t code) { return value_of_fp8(code) == std::abs(v); };
  uint8_t code = 0;
  while (code < 0x7f && !found(code)) ++code;
  return static_cast<uint8_t>(code | (std::signbit(v) ? 0x80 : 0));
}

inline bf16 cached(double v, CacheFormat format) { return to_bf16(format == CacheFormat::fp8 ? rounded_to_fp8(v) : v); }

// The pool as a kernel reads it, in elements of two bytes.
inline std::vector<bf16> pool_in_memory(const std::vector<bf16>& values, CacheFormat format) {
  if (format == CacheFormat::bf16) return values;
  std::vector<uint8_t> codes;
  for (const bf16 v : values) codes.push_back(fp8_code(value_of(v)));
  std::vector<bf16> pool(codes.size() / 2);
  std::memcpy(pool.data(), codes.data(), codes.size());
  return pool;
}

}  // namespace nodewright::test
