// The elements of the cache in kernels: how they are stored, and how they enter products out of shared memory. bf16 do
// as they are, beside queries and probabilities in bf16. FP8 becomes fp16 in registers, exactly, beside fp16.
//
// A piece of 16 bytes has 16 elements of FP8, those of two steps of a load of matrices. A lane gets four neighbours of
// a row, so in the products of a step the columns of an operand are elements 4t, 4t + 1, and then 4t + 2, 4t + 3, for t
// = 0 .. 3 (column_of). Transposed, it gets neighbours of two rows: the even ones are columns of one sum, the odd ones
// of the next (element_of).
//
// Constants: kCacheFormat, kPaddedHeadDim.
#pragma once

#include "kernels_src/attention/kv_pages.h"
#include "kernels_src/device/fp8.cuh"
#include "kernels_src/device/tensor.cuh"

namespace nodewright {

constexpr CacheFormat kFormat = static_cast<CacheFormat>(kCacheFormat);
constexpr bool kFp8Cache = kFormat == CacheFormat::fp8;
constexpr int kPiece = cache_piece(kFormat);  // elements of 16 bytes

// `scale`: of the layer's keys or values.
template <CacheFormat kOf>
struct CacheElement {
  using Type = bf16;
  NODEWRIGHT_DEVICE static bf16 of(float v, float) { return to_bf16(v); }
};
template <>
struct CacheElement<CacheFormat::fp8> {
  using Type = fp8;
  NODEWRIGHT_DEVICE static fp8 of(float v, float scale) { return to_fp8(v / scale); }
};
using KvElement = CacheElement<kFormat>::Type;
NODEWRIGHT_DEVICE KvElement to_cache(float v, float scale) { return CacheElement<kFormat>::of(v, scale); }

// The pool that a launch is given, bf16 or const bf16.
NODEWRIGHT_DEVICE const KvElement* pool_of(const bf16* kv) { return reinterpret_cast<const KvElement*>(kv); }
NODEWRIGHT_DEVICE KvElement* pool_of(bf16* kv) { return reinterpret_cast<KvElement*>(kv); }

// Where the row of token `slot` has element d.
NODEWRIGHT_DEVICE constexpr int place_in_row(int slot, int d) { return kv_in_row(slot, d, kPaddedHeadDim, kPiece); }

// Powers of two that probabilities are multiplied by, all of them: fp16 has none below 2^-24.
constexpr float kLift = 14.0f;

// A pair of elements of a left operand, and what rounding leaves of them.
template <bool kHalves>
NODEWRIGHT_DEVICE uint32_t operand_pair(float low, float high) {
  if constexpr (kHalves)
    return round_halves(low, high);
  else
    return round_pair(low, high);
}
template <bool kHalves>
NODEWRIGHT_DEVICE uint32_t rest_of_pair(uint32_t pair, float low, float high) {
  if constexpr (kHalves) {
    const float2 rounded = floats_of_halves(pair);
    return round_halves(low - rounded.x, high - rounded.y);
  } else {
    return round_pair(low - low_bf16(pair), high - high_bf16(pair));
  }
}

// The column of an operand that has element d of a head, and the element of an even column and the next.
NODEWRIGHT_DEVICE constexpr int column_of(int d) {
  return kFp8Cache ? d / 16 * 16 + d % 16 / 4 * 2 + d % 4 / 2 * 8 + d % 2 : d;
}
NODEWRIGHT_DEVICE constexpr int element_at(int column) {
  return kFp8Cache ? column / 16 * 16 + column % 8 / 2 * 4 + column % 16 / 8 * 2 : column;
}
// The element of a head that is column i + k of sum n of multiply_values.
NODEWRIGHT_DEVICE constexpr int element_of(int n, int i, int k) {
  return kFp8Cache ? n / 2 * 16 + (i + k) * 2 + n % 2 : n * 8 + i + k;
}

// Loads of matrices for `steps` steps, each of two pieces of a row, and which of the two a lane asks for that is to
// have `half`: of an odd number of steps the last load has one that is not there, and nobody uses.
NODEWRIGHT_DEVICE constexpr int loads_of(int steps) { return kFp8Cache ? (steps + 1) / 2 : steps; }
template <int kSteps>
NODEWRIGHT_DEVICE constexpr int half_of_load(int i, int half) {
  if constexpr (kFp8Cache && kSteps % 2 != 0) return 2 * i + 1 < kSteps ? half : 0;
  return half;
}

// As multiply_rows and multiply_columns (device/tensor.cuh), with right operands in the cache's elements. piece(n, i):
// of the i-th load of matrices.
template <int kSteps, int N, int kChains, class LeftOf, class Piece>
NODEWRIGHT_DEVICE void multiply_keys(float (&c)[N][kChains][2][4], const LeftOf& left, const Piece& piece) {
  if constexpr (!kFp8Cache) {
    multiply_rows<kSteps>(c, left, piece);
  } else {
#ifdef __CUDACC_RTC__
    NODEWRIGHT_UNROLL
    for (int i = 0; i < loads_of(kSteps); ++i) {
      uint32_t a[2][4];
      left(a[0], 2 * i);
      if (2 * i + 1 < kSteps) left(a[1], 2 * i + 1);
      NODEWRIGHT_UNROLL
      for (int n = 0; n < N; ++n) {
        uint32_t b[4];
        load_matrices(b, reinterpret_cast<const bf16*>(piece(n, i)));
        NODEWRIGHT_UNROLL
        for (int half = 0; half < 2; ++half) {
          if (2 * i + half >= kSteps) continue;
          NODEWRIGHT_UNROLL
          for (int eight = 0; eight < 2; ++eight) {
            const uint2 pairs = halves_of_fp8(b[eight * 2 + half]);
            multiply_operands<true>(c[n][(2 * i + half) % kChains][eight], a[half], pairs.x, pairs.y);
          }
        }
      }
    }
#else
    emulate_rows<kSteps, emulation::Fp8Pieces>(c, left, piece);
#endif
  }
}
template <int N, class Piece>
NODEWRIGHT_DEVICE void multiply_values(float (&c)[N][4], const uint32_t (&a)[4], const Piece& piece) {
  if constexpr (!kFp8Cache) {
    multiply_columns(c, a, piece);
  } else {
#ifdef __CUDACC_RTC__
    NODEWRIGHT_UNROLL
    for (int i = 0; i < loads_of(N / 2); ++i) {
      uint32_t b[4];
      load_matrices_transposed(b, reinterpret_cast<const bf16*>(piece(i)));
      NODEWRIGHT_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (4 * i + 2 * half >= N) continue;
        const uint2 upper = halves_of_fp8(__byte_perm(b[2 * half], 0u, 0x3120u)),
                    lower = halves_of_fp8(__byte_perm(b[2 * half + 1], 0u, 0x3120u));
        multiply_operands<true>(c[4 * i + 2 * half], a, upper.x, lower.x);
        multiply_operands<true>(c[4 * i + 2 * half + 1], a, upper.y, lower.y);
      }
    }
#else
    emulation::multiply_columns<N, emulation::Fp8Pieces>(c, a, piece);
#endif
  }
}

}  // namespace nodewright
