// A thread's columns of x as pairs of fp16, which tensor cores multiply by codes of its own words of two rows of W.
#pragma once

#include "kernels_src/product/rows/diagonal.cuh"
#include "kernels_src/product/rows/weight_batch.cuh"

namespace nodewright {

#ifdef __CUDACC_RTC__
// This thread's columns, times the factor of the warp's largest.
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
      const HalfFactors factors(__reduce_max_sync(0xffffffffu, largest));
      inverse[m] = factors.inverse;
      NODEWRIGHT_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        slice.widen(m, c, v);
        x[m][c] = factors.halves(v);
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

  // c += the chunks of a group of two rows' word i times row m of x.
  template <class Format = Weights>  // no kernel in bf16 has this
  NODEWRIGHT_DEVICE void add_chunks(float (&c)[4], const CodedWord& first, const CodedWord& second, int m, int i,
                                    int group) const {
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kChunksOfGroup; ++j) {
      const int chunk = group * kChunksOfGroup + j;
      add_chunk<Format>(c, first, second, chunk, x[m][i * kChunksOfWord + chunk]);
    }
  }
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
      return CodedWord{j < kRowsAtOnce ? batch.w[r + j][i] : uint4{0u, 0u, 0u, 0u}, groups};
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
              const float of_group = on_diagonal(c[j / 2][m], j % 2);
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
        for (int m = 0; m < kTile; ++m) sums[(r + j) * static_cast<int>(kTile) + m] = on_diagonal(c[j / 2][m], j % 2);
      }
    }
  }
  NODEWRIGHT_UNROLL
  for (int i = 0; i < kSums; ++i)
    sums[i] = has_diagonal() ? sums[i] * slice.inverse[i % static_cast<int>(kTile)] : 0.0f;
}
#endif

}  // namespace nodewright
