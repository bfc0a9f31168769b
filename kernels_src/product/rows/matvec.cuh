// A weight matrix streamed once past a few rows of x. Included by the kernels that end in different epilogues.
//
// Thread t owns the columns (c * kThreads + t) * 8 .. + 7, c < kChunks, of every row: its slice of x stays in
// registers, a weight row is one coalesced 16-byte load a thread and chunk, and no x passes through shared memory.
// Block b owns a contiguous range of outputs, so bytes are balanced over SMs to within one row. Sums go lane -> warp
// (butterfly) -> shared memory -> block, in an order that depends on W's shape only: a row's bits do not depend on the
// bucket.
//
// Dependents are released as soon as a block's first weights are requested: released after the wait, a 1B step took
// 0.955 ms instead of 0.890 on one H200 (2026-11-20).
//
// Constants: kTile rows of x, kCols, kStride (W's row stride, elements), kThreads, kBatch (W rows in flight), kSegment,
// kBias 1 if outputs have one.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/device/output_range.cuh"
#include "kernels_src/product/rows/packed_slice.h"

namespace nodewright {

constexpr int kWarps = static_cast<int>(kThreads / 32);
constexpr int kChunks = static_cast<int>((kStride / 8 + kThreads - 1) / kThreads);
constexpr int kSums = static_cast<int>(kBatch * kTile);  // sums a batch ends in; a power of two, at most 32
static_assert(kSums <= 32 && (kSums & (kSums - 1)) == 0);

// First element of this thread's chunk c.
NODEWRIGHT_DEVICE int chunk_column(int c) {
  return (c * static_cast<int>(kThreads) + static_cast<int>(threadIdx.x)) * 8;
}

// The weight rows in flight: [kBatch][kChunks] 16-byte loads a thread.
struct WeightBatch {
  uint4 w[kBatch][kChunks];
};

// Chunk c of the row at `row` (this thread's first element of it), if the row counts.
NODEWRIGHT_DEVICE uint4 load_weight(const bf16* row, bool counts, int c) {
  constexpr bool kExact = kChunks * kThreads * 8 == kStride;
  if (!counts || (!kExact && chunk_column(c) >= kStride)) return uint4{0u, 0u, 0u, 0u};
  return load_once_16(row + c * kThreads * 8);
}

NODEWRIGHT_DEVICE void request_first_batch(WeightBatch& batch, const bf16* weight, OutputRange range) {
  const bf16* row = weight + static_cast<int64_t>(range.first) * kStride + chunk_column(0);
  NODEWRIGHT_UNROLL
  for (int r = 0; r < kBatch; ++r) {
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) batch.w[r][c] = load_weight(row + r * kStride, range.first + r < range.last, c);
  }
}

// This thread's columns of x, in fp32.
struct InputSlice {
  float x[kTile][kChunks][8];
  NODEWRIGHT_DEVICE float add_dot(uint4 w, int m, int c, float sum) { return dot_8(w, x[m][c], sum); }
};

// The same as bf16, in half the registers. Each use widens them, to the same bits.
struct PackedSlice {
  uint4 x[kTile][kChunks];
  NODEWRIGHT_DEVICE float add_dot(uint4 w, int m, int c, float sum) {
    uint4& packed = x[m][c];
    forget_origin(packed);  // else the compiler widens all of them once
    float wide[8];
    unpack_8(packed, wide);
    return dot_8(w, wide, sum);
  }
};

// Runs the block's outputs through. `store(segment_first, rows, sum)` is called by every thread after each segment;
// sum(r, m) gives the finished dot product of weight row segment_first + r with row m of x.
template <class Slice, class Store>
NODEWRIGHT_DEVICE void stream_weights(const bf16* weight, OutputRange range, WeightBatch& batch, Slice& slice,
                                      float* partial /*[kSegment][kTile][kWarps]*/, Store store) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  auto sum = [&](int r, int m) {
    float total = 0.0f;
    NODEWRIGHT_UNROLL
    for (int w = 0; w < kWarps; ++w) total += partial[(r * static_cast<int>(kTile) + m) * kWarps + w];
    return total;
  };
  const bf16* next = weight + static_cast<int64_t>(range.first + static_cast<int>(kBatch)) * kStride + chunk_column(0);
  for (int segment = range.first; segment < range.last; segment += static_cast<int>(kSegment)) {
    const int segment_end = min(segment + static_cast<int>(kSegment), range.last);
    for (int row = segment; row < segment_end; row += static_cast<int>(kBatch)) {
      float sums[kSums] = {};
      const int left = range.last - row - static_cast<int>(kBatch);  // rows after this batch
      NODEWRIGHT_UNROLL
      for (int r = 0; r < kBatch; ++r) {
        NODEWRIGHT_UNROLL
        for (int c = 0; c < kChunks; ++c) {
          const uint4 w = batch.w[r][c];
          batch.w[r][c] = load_weight(next + r * kStride, r < left, c);
          NODEWRIGHT_UNROLL
          for (int m = 0; m < kTile; ++m) {
            float& s = sums[r * static_cast<int>(kTile) + m];
            s = slice.add_dot(w, m, c, s);
          }
        }
      }
      next += kBatch * kStride;
      warp_sums_scattered<kSums>(sums);
      const int value = lane / (32 / kSums);
      if (lane % (32 / kSums) == 0)
        partial[((row - segment) * static_cast<int>(kTile) + value) * kWarps + warp] = sums[0];
    }
    __syncthreads();
    store(segment, segment_end - segment, sum);
    if (segment_end < range.last) __syncthreads();
  }
}

// The i-th sum of a segment of `rows` weight rows: of weight row r and row m of x. Without a division where there is
// one row: the next kernel waits for what is stored there.
struct SumPlace {
  int r, m;
};
NODEWRIGHT_DEVICE SumPlace sum_place(int i, int rows) {
  if constexpr (kTile == 1) return {i, 0};
  return {i % rows, i / rows};
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
using RowSlice = SliceOf<keeps_packed(kChunks)>::Type;  // of rows that come in bf16

// What a kernel without a norm does: requests weights, waits, loads the rows of x, streams, stores. `args`: Product or
// the like, from RowsIn; store(first_row, live, segment, rows, sum) as in stream_weights, with the first
// of the block's rows of x and how many of its kTile count; before(first_row, live, segment, rows): of the first
// segment, as soon as the inputs are there.
template <class Args, class Before, class Store>
NODEWRIGHT_DEVICE void project_rows(const Args& args, Before before, Store store) {
  float* partial = reinterpret_cast<float*>(shared_memory());
  const OutputRange range = block_outputs(args.w.outputs, 1);
  WeightBatch batch;
  request_first_batch(batch, args.w.weight.data, range);
  release_dependents();
  wait_for_inputs();

  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t live = kSingleRow != 0 ? 1 : args.n_live.data[0] - first_row;
  before(first_row, live, range.first, min(static_cast<int>(kSegment), range.last - range.first));
  RowSlice slice;
  load_slice(slice, args.from.x.data + first_row * args.from.x_stride, args.from.x_stride);
  stream_weights(args.w.weight.data, range, batch, slice, partial,
                 [&](int segment, int rows, auto sum) { store(first_row, live, segment, rows, sum); });
}

// sum + bias[output], where the family has biases (kBias).
NODEWRIGHT_DEVICE float biased(const WeightIn& w, int output, float sum) {
  if constexpr (kBias != 0) return sum + to_float(w.bias.data[output]);
  return sum;
}

}  // namespace nodewright
