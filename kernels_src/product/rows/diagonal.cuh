// Codes of a lane's own words of two rows of W times pairs of fp16, on the diagonal of tensor cores' products.
//
// mma.m16n8k16 takes four columns from each lane: lane (g, t)'s of row g of the left operand and of column g of the
// right one. With those of one row of W on the left and of x on the right, element [g][g] of the product is what the
// four lanes of g contribute to W . x; rows g + 8 are a second row of W, and all other elements are left alone. So a
// warp reads 512 bytes of a row at once, and converts codes to fp16 alone.
#pragma once

#include "kernels_src/product/format/weights.cuh"

namespace nodewright {

#ifdef __CUDACC_RTC__
// c += a . b, with two pairs of a's rows g from `upper` and two of its rows g + 8 from `lower` (device/tensor.cuh). Not
// volatile: chains may take turns.
NODEWRIGHT_DEVICE void multiply_pairs(float (&c)[4], uint2 upper, uint2 lower, uint2 x) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(upper.x), "r"(lower.x), "r"(upper.y), "r"(lower.y), "r"(x.x), "r"(x.y));
}
NODEWRIGHT_DEVICE uint32_t half_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Whether sums of codes are multiplied by what a group shares. Codes come as multiples of 2^-24 then, in odd pairs of
// 2^-20, and odd pairs of x are a sixteenth. Else codes become weights first.
constexpr bool kSumsOfCodes = Weights::kSharedByLanes;

// What brings the largest of some columns of x to 2^13 to 2^14: a power of two.
struct HalfFactors {
  float even, odd;
  float inverse;  // what the sums are multiplied by

  // `largest`: bits of its magnitude.
  NODEWRIGHT_DEVICE explicit HalfFactors(uint32_t largest) {
    // The exponent of the factor as fp32 stores it; zeros stay zeros.
    const int exponent = min(2 * 127 + 13 - static_cast<int>(largest >> 23), 250);
    even = bits_to_float(static_cast<uint32_t>(exponent) << 23), odd = kSumsOfCodes ? even / 16 : even;
    inverse = bits_to_float(static_cast<uint32_t>(254 - exponent) << 23) * (kSumsOfCodes ? 0x1p24f : 1.0f);
  }
  // Eight columns.
  NODEWRIGHT_DEVICE uint4 halves(const float (&v)[8]) const {
    return uint4{half_pair(v[0] * even, v[1] * even), half_pair(v[2] * odd, v[3] * odd),
                 half_pair(v[4] * even, v[5] * even), half_pair(v[6] * odd, v[7] * odd)};
  }
};

// A word of 16 bytes, and what its groups share.
struct CodedWord {
  uint4 codes;
  const uint32_t* groups;
};
// c += a chunk of two rows' words times eight columns of x.
template <class Format>
NODEWRIGHT_DEVICE void add_chunk(float (&c)[4], const CodedWord& first, const CodedWord& second, int chunk,
                                 uint4 columns) {
  const uint4 upper = halves_of(Format{}, first.codes, chunk, first.groups),
              lower = halves_of(Format{}, second.codes, chunk, second.groups);
  multiply_pairs(c, {upper.x, upper.y}, {lower.x, lower.y}, {columns.x, columns.y});
  multiply_pairs(c, {upper.z, upper.w}, {lower.z, lower.w}, {columns.z, columns.w});
}
// The sum of the first or second row in this lane's part of the diagonal. Every fourth lane has one.
NODEWRIGHT_DEVICE float on_diagonal(const float (&c)[4], int second) {
  return lane_of_warp() / 4 % 2 != 0 ? c[2 * second + 1] : c[2 * second];
}
NODEWRIGHT_DEVICE bool has_diagonal() { return lane_of_warp() % 4 == lane_of_warp() / 8; }
#endif

}  // namespace nodewright
