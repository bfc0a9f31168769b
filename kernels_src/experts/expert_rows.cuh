// Rows of experts' matrices streamed past one row of x, with ordinary arithmetic: a warp has a group of rows of W at a
// time, whole ones or with kParts a part of their columns, in words that its lanes read side by side. An expert's rows
// are short and few, so warps share nothing; a dot product's order depends on the columns only.
//
// Constants: kCols, kStride (W's row stride, elements).
#pragma once

#include "kernels_src/device/numeric.cuh"

namespace nodewright {

template <int kGroup, int kParts>
struct ExpertRows {
  static constexpr int kWords =
      static_cast<int>((kStride / 8 + 32 * kParts - 1) / (32 * kParts));      // of a lane, in a row
  static constexpr int kAhead = kWords < 16 / kGroup ? kWords : 16 / kGroup;  // of them, on their way at once
  static constexpr int kBlocks = (kWords + kAhead - 1) / kAhead;
  static constexpr bool kExact = kBlocks * kAhead * kParts * 256 == kStride;

  uint4 words[kAhead][kGroup];
  int part;  // of the columns

  NODEWRIGHT_DEVICE explicit ExpertRows(int columns) : part(columns) {}

  NODEWRIGHT_DEVICE int column(int block, int i) const {
    return (((block * kAhead + i) * kParts + part) * 32 + lane_of_warp()) * 8;
  }
  // Requests the `rows` rows at `group`.
  NODEWRIGHT_DEVICE void request(int i, const bf16* group, int rows, int block) {
    const bool counts = kExact || column(block, i) < kStride;
    NODEWRIGHT_UNROLL
    for (int r = 0; r < kGroup; ++r)
      words[i][r] = counts && r < rows ? load_once_16(group + r * kStride + column(block, i)) : uint4{0u, 0u, 0u, 0u};
  }
  NODEWRIGHT_DEVICE void start(const bf16* group, int rows) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kAhead; ++i) request(i, group, rows, 0);
  }
  // Groups 0 to groups - 1, the first of which has been started. group_at(g, rows): where it begins, and how many rows
  // it has; x_at(column, x): 8 elements; done(g, sums) with this lane's part of the sums.
  template <class GroupAt, class XAt, class Done>
  NODEWRIGHT_DEVICE void run(int groups, GroupAt group_at, XAt x_at, Done done) {
    if (groups <= 0) return;
    int rows_ahead = 0;
    const bf16* ahead = group_at(0, rows_ahead);
    NODEWRIGHT_NO_UNROLL
    for (int g = 0; g < groups; ++g) {
      float sums[kGroup] = {};
      NODEWRIGHT_NO_UNROLL
      for (int block = 0; block < kBlocks; ++block) {
        const bool last = block + 1 == kBlocks;
        if (last) ahead = g + 1 < groups ? group_at(g + 1, rows_ahead) : (rows_ahead = 0, ahead);
        NODEWRIGHT_UNROLL
        for (int i = 0; i < kAhead; ++i) {
          float x[8] = {};
          if (kExact || column(block, i) < kStride) x_at(column(block, i), x);
          NODEWRIGHT_UNROLL
          for (int r = 0; r < kGroup; ++r) sums[r] = dot_8(words[i][r], x, sums[r]);
          request(i, ahead, rows_ahead, last ? 0 : block + 1);
        }
      }
      done(g, sums);
    }
  }
};

// Eight elements of a bf16 row of kCols that count, from `column` on.
NODEWRIGHT_DEVICE void load_counted_8(const bf16* row, int column, float (&x)[8]) {
  unpack_8(load_16(row + column), x);
  if constexpr (kCols % 8 != 0) {  // columns from kCols on are undefined
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i)
      if (column + i >= kCols) x[i] = 0.0f;
  }
}

// The expert of a row from n_live on is undefined.
NODEWRIGHT_DEVICE int64_t valid_expert(int expert) {
  return static_cast<uint32_t>(expert) < static_cast<uint32_t>(kExperts) ? expert : 0;
}

}  // namespace nodewright
