// A thread's columns of x as pairs of fp16, which tensor cores multiply by codes of its own words of two rows of W.
//
// mma.m16n8k16 takes four columns from each lane: lane (g, t)'s of row g of the left operand and of column g of the
// right one. With those of one row of W on the left and of x on the right, element [g][g] of the product is what the
// four lanes of g contribute to W . x; rows g + 8 are a second row of W, and all other elements are left alone. So a
// warp reads 512 bytes of a row at once, and converts codes to fp16 alone.
#pragma once

#include "kernels_src/product/rows/weight_batch.cuh"

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

// This thread's columns, times a power of two that brings the largest of the warp's to 2^13 to 2^14.
struct HalfSlice {
  static constexpr int kChunksOfGroup = kChunksOfWord / kGroupsOfWord;

  uint4 x[kTile][kChunks];
  float inverse[kTile];  // what the sums are multiplied by
  // Sums with codes of 1: x's, of groups.
  float of_ones[kSumsOfCodes ? kTile : 1][kSumsOfCodes ? kWords : 1][kGroupsOfWord];

  // slice: InputSlice or PackedSlice.
  template <class Slice>
  NODEWRIGHT_DEVICE explicit HalfSlice(const Slice& slice) {
    float v[8];
    NODEWRIGHT_UNROLL
    for (int m = 0; m < kTile; ++m) {
      uint32_t largest = 0;  // bits of a magnitude
      NODEWRIGHT_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        slice.widen(m, c, v);
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) largest = max(largest, float_to_bits(v[i]) & 0x7fffffffu);
      }
      // The exponent of the factor as fp32 stores it; zeros stay zeros.
      const int exponent = min(2 * 127 + 13 - static_cast<int>(__reduce_max_sync(0xffffffffu, largest) >> 23), 250);
      const float even = bits_to_float(static_cast<uint32_t>(exponent) << 23), odd = kSumsOfCodes ? even / 16 : even;
      inverse[m] = bits_to_float(static_cast<uint32_t>(254 - exponent) << 23) * (kSumsOfCodes ? 0x1p24f : 1.0f);
      NODEWRIGHT_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        slice.widen(m, c, v);
        x[m][c] = uint4{half_pair(v[0] * even, v[1] * even), half_pair(v[2] * odd, v[3] * odd),
                        half_pair(v[4] * even, v[5] * even), half_pair(v[6] * odd, v[7] * odd)};
      }
    }
    if constexpr (kSumsOfCodes) {
      const uint4 ones{0x11111111u, 0x11111111u, 0x11111111u, 0x11111111u};
      NODEWRIGHT_UNROLL
      for (int m = 0; m < kTile; ++m) {
        NODEWRIGHT_UNROLL
        for (int i = 0; i < kWords; ++i) {
          NODEWRIGHT_UNROLL
          for (int g = 0; g < kGroupsOfWord; ++g) {
            float c[4] = {};
            add_chunks(c, {ones, nullptr}, {ones, nullptr}, m, i, g);
            of_ones[m][i][g] = on_diagonal(c, 0);
          }
        }
      }
    }
  }

  // A word, and what its groups share.
  struct Word {
    uint4 codes;
    const uint32_t* groups;
  };
  // c += the chunks of a group of two rows' word i times row m of x.
  template <class Format = Weights>  // no kernel in bf16 has this
  NODEWRIGHT_DEVICE void add_chunks(float (&c)[4], const Word& first, const Word& second, int m, int i,
                                    int group) const {
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kChunksOfGroup; ++j) {
      const int chunk = group * kChunksOfGroup + j;
      const uint4 upper = halves_of(Format{}, first.codes, chunk, first.groups),
                  lower = halves_of(Format{}, second.codes, chunk, second.groups),
                  columns = x[m][i * kChunksOfWord + chunk];
      multiply_pairs(c, {upper.x, upper.y}, {lower.x, lower.y}, {columns.x, columns.y});
      multiply_pairs(c, {upper.z, upper.w}, {lower.z, lower.w}, {columns.z, columns.w});
    }
  }
  // The sum of the first or second row in this lane's part of the diagonal. Every fourth lane has one.
  NODEWRIGHT_DEVICE static float on_diagonal(const float (&c)[4], int second) {
    return lane_of_warp() / 4 % 2 != 0 ? c[2 * second + 1] : c[2 * second];
  }
  NODEWRIGHT_DEVICE static bool has_diagonal() { return lane_of_warp() % 4 == lane_of_warp() / 8; }
};

// As of row_slice.cuh.
template <class Counts, class Reload, class Scale>
NODEWRIGHT_DEVICE void multiply_batch(HalfSlice& slice, float (&sums)[kSums], WeightBatch& batch, Counts counts,
                                      Reload reload, Scale scale) {
  constexpr int kPairs = (kRowsAtOnce + 1) / 2;
  constexpr bool kEnds = kSumsOfCodes || kScaledBlocks;  // a group of a word's columns has a scale
  NODEWRIGHT_UNROLL
  for (int r = 0; r < kBatch; r += kRowsAtOnce) {
    if (r > 0 && !counts(r)) break;
    float c[kPairs][kTile][4] = {};
    // j: of kRowsAtOnce rows
    const auto word = [&](int j, int i) {
      const uint32_t* const groups = batch.groups[kHasGroups ? r + j % kRowsAtOnce : 0][kHasGroups ? i : 0].of;
      return HalfSlice::Word{j < kRowsAtOnce ? batch.w[r + j][i] : uint4{0u, 0u, 0u, 0u}, groups};
    };
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kWords; ++i) {
      NODEWRIGHT_UNROLL
      for (int g = 0; g < kGroupsOfWord; ++g) {
        NODEWRIGHT_UNROLL
        for (int m = 0; m < kTile; ++m) {
          NODEWRIGHT_UNROLL
          for (int p = 0; p < kPairs; ++p) slice.add_chunks(c[p][m], word(2 * p, i), word(2 * p + 1, i), m, i, g);
        }
        if constexpr (kEnds) {
          NODEWRIGHT_UNROLL
          for (int j = 0; j < kRowsAtOnce; ++j) {
            NODEWRIGHT_UNROLL
            for (int m = 0; m < kTile; ++m) {
              float& sum = sums[(r + j) * static_cast<int>(kTile) + m];
              const float of_group = HalfSlice::on_diagonal(c[j / 2][m], j % 2);
              if constexpr (kSumsOfCodes) {
                sum = Weights::group(batch.groups[r + j][i].of, g).joined(sum, of_group, slice.of_ones[m][i][g]);
              } else {
                sum = fmaf(of_group, scale(r + j, i), sum);
              }
              c[j / 2][m][j % 2 * 2] = c[j / 2][m][j % 2 * 2 + 1] = 0.0f;
            }
          }
        }
      }
      NODEWRIGHT_UNROLL
      for (int j = 0; j < kRowsAtOnce; ++j) reload(r + j, i);
    }
    if constexpr (!kEnds) {
      NODEWRIGHT_UNROLL
      for (int j = 0; j < kRowsAtOnce; ++j) {
        NODEWRIGHT_UNROLL
        for (int m = 0; m < kTile; ++m)
          sums[(r + j) * static_cast<int>(kTile) + m] = HalfSlice::on_diagonal(c[j / 2][m], j % 2);
      }
    }
  }
  NODEWRIGHT_UNROLL
  for (int i = 0; i < kSums; ++i)
    sums[i] = HalfSlice::has_diagonal() ? sums[i] * slice.inverse[i % static_cast<int>(kTile)] : 0.0f;
}
#endif

}  // namespace nodewright
