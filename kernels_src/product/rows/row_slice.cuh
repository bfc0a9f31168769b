// A thread's columns of x, and their products with the words in flight, element by element in fp32.
#pragma once

#include "kernels_src/product/rows/packed_slice.h"
#include "kernels_src/product/rows/weight_batch.cuh"

namespace nodewright {

// This thread's columns of x, in fp32.
struct InputSlice {
  float x[kTile][kChunks][8];
  template <class Eight>
  NODEWRIGHT_DEVICE float add_dot(const Eight& w, int m, int c, float sum) {
    return dot_8(w, x[m][c], sum);
  }
  NODEWRIGHT_DEVICE void widen(int m, int c, float (&v)[8]) const {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = x[m][c][i];
  }
};

// The same as bf16, in half the registers. Each use widens them, to the same bits.
struct PackedSlice {
  uint4 x[kTile][kChunks];
  template <class Eight>
  NODEWRIGHT_DEVICE float add_dot(const Eight& w, int m, int c, float sum) {
    uint4& packed = x[m][c];
    forget_origin(packed);  // else the compiler widens all of them once
    float wide[8];
    unpack_8(packed, wide);
    return dot_8(w, wide, sum);
  }
  NODEWRIGHT_DEVICE void widen(int m, int c, float (&v)[8]) const { unpack_8(x[m][c], v); }
};

// sums[r * kTile + m] += row r of the batch times row m of x. counts(r): whether row r is one of the block's; from the
// first that is not, rows are left out in groups of kRowsAtOnce. reload(r, i): requests the word that takes the place
// of word i of row r. scale(r, i): of that word, where blocks have one.
template <class Slice, class Counts, class Reload, class Scale>
NODEWRIGHT_DEVICE void multiply_batch(Slice& slice, float (&sums)[kSums], WeightBatch& batch, Counts counts,
                                      Reload reload, Scale scale) {
  NODEWRIGHT_UNROLL
  for (int r = 0; r < kBatch; ++r) {
    if (r > 0 && r % kRowsAtOnce == 0 && !counts(r)) break;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kWords; ++i) {
      const uint4 word = batch.w[r][i];
      const GroupWords groups = batch.groups[kHasGroups ? r : 0][kHasGroups ? i : 0];
      if constexpr (!kLoadsAfter) reload(r, i);
      NODEWRIGHT_UNROLL
      for (int m = 0; m < kTile; ++m) {
        float& s = sums[r * static_cast<int>(kTile) + m];
        float of_word = kScaledBlocks ? 0.0f : s;
        NODEWRIGHT_UNROLL
        for (int c = 0; c < kChunksOfWord; ++c)
          of_word = slice.add_dot(eight_of(word, c, groups.of), m, i * kChunksOfWord + c, of_word);
        if constexpr (kScaledBlocks)
          s = fmaf(of_word, scale(r, i), s);
        else
          s = of_word;
      }
      if constexpr (kLoadsAfter) reload(r, i);
    }
  }
}

// Eight bf16 from `row` + column of a row of kCols elements that may end anywhere; past the end, zero.
template <class Load>
NODEWRIGHT_DEVICE uint4 load_ragged_8(const bf16* row, int column, Load load_8) {
  if (column + 8 <= kCols) return load_8(row + column);
  uint32_t words[4] = {};
  if constexpr (kCols % 8 != 0) {
    for (int i = 0; i < kCols - column; ++i)
      words[i / 2] |= static_cast<uint32_t>(row[column + i].bits) << (i % 2 * 16);
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

NODEWRIGHT_DEVICE void keep(InputSlice& slice, int m, int c, uint4 columns) { unpack_8(columns, slice.x[m][c]); }
NODEWRIGHT_DEVICE void keep(PackedSlice& slice, int m, int c, uint4 columns) { slice.x[m][c] = columns; }

// The slice of bf16 rows x: kTile rows, `row_stride` elements apart, of which the first kCols count.
template <class Slice>
NODEWRIGHT_DEVICE void load_slice(Slice& slice, const bf16* x, int64_t row_stride) {
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c)
      keep(slice, m, c, load_ragged_8(x + m * row_stride, chunk_column(c), [](const bf16* p) { return load_16(p); }));
  }
}

template <bool kPacked>
struct SliceOf {
  using Type = InputSlice;
};
template <>
struct SliceOf<true> {
  using Type = PackedSlice;
};
using RowSlice = SliceOf<keeps_packed(kChunks) || kDiagonal>::Type;  // of rows that come in bf16

}  // namespace nodewright
