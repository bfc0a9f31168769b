// A weight matrix streamed once past a few rows of x. Included by the kernels that end in different epilogues.
//
// Thread t owns the columns of the words i * kThreads + t, i < kWords, of every row: its slice of x stays in registers,
// in chunks of 8 columns, a weight row is one coalesced load of 16 bytes a thread and word, and no x passes through
// shared memory.
// Block b owns a contiguous range of outputs, so bytes are balanced over SMs to within one row. Sums go lane -> warp
// (butterfly) -> shared memory -> block, in an order that depends on W's shape only: a row's bits do not depend on the
// bucket.
//
// Dependents are released as soon as a block's first weights are requested: released after the wait, a 1B step took
// 0.955 ms instead of 0.890 on one H200 (2026-11-20).
//
// Constants: kTile rows of x, kCols, kStride (W's row stride, elements), kThreads, kBatch (W rows in flight), kSegment,
// kBias 1 if outputs have one; those of product/format/weights.cuh.
#pragma once

#include "kernels_src/product/rows/half_slice.cuh"
#include "kernels_src/product/rows/row_slice.cuh"

namespace nodewright {

// Runs the block's outputs through. `store(segment_first, rows, sum)` is called by every thread after each segment;
// sum(r, m) gives the finished dot product of weight row segment_first + r with row m of x.
template <class Slice, class Store>
NODEWRIGHT_DEVICE void stream_weights(const Stored* weight, OutputRange range, WeightBatch& batch, Slice& slice,
                                      float* partial /*[kSegment][kTile][kWarps]*/, Store store) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  auto sum = [&](int r, int m) {
    float total = 0.0f;
    NODEWRIGHT_UNROLL
    for (int w = 0; w < kWarps; ++w) total += partial[(r * static_cast<int>(kTile) + m) * kWarps + w];
    return total;
  };
  const Stored* next = row_of(weight, range.first + static_cast<int>(kBatch));
  for (int segment = range.first; segment < range.last; segment += static_cast<int>(kSegment)) {
    const int segment_end = min(segment + static_cast<int>(kSegment), range.last);
    for (int row = segment; row < segment_end; row += static_cast<int>(kBatch)) {
      float sums[kSums] = {};
      const int left = range.last - row - static_cast<int>(kBatch);  // rows after this batch
      const auto counts = [&](int r) { return row + r < segment_end; };
      // Words i of the batch's row r, as they are multiplied and after that.
      const auto reload = [&](int r, int i) {
        if constexpr (kLoadsAfter)
          reload_weight(batch.w[r][i], next + r * kRowElements, r < left, i);
        else
          batch.w[r][i] = load_weight(next + r * kRowElements, r < left, i);
        load_groups(batch, batch.next_groups, r, r < left, i);
      };
      if constexpr (kScaledBlocks) {
        WordScales& scales = batch.scales;
        if (row >= scales.next_row) scales.load_groups(row, range);
        float others[WordScales::kGroups][kWords];  // of the batch's rows in the next groups
        const bool has_others = row + static_cast<int>(kBatch) > scales.next_row && scales.next_row < range.last;
        NODEWRIGHT_UNROLL
        for (int u = 0; u < WordScales::kGroups; ++u) {
          NODEWRIGHT_UNROLL
          for (int i = 0; i < kWords; ++i)
            others[u][i] = has_others ? scales.load_counted(scales.next_row + u, i, range) : 0.0f;
        }
        multiply_batch(slice, sums, batch, counts, reload, [&](int r, int i) {
          const float now = scales.now[r % WordScales::kGroups][i], other = others[r % WordScales::kGroups][i];
          return row + r < scales.next_row ? now : other;
        });
      } else {
        multiply_batch(slice, sums, batch, counts, reload, [](int, int) { return 1.0f; });
      }
      if constexpr (kHasGroups) batch.next_groups += kBatch * kRowGroupBytes;
      next += kBatch * kRowElements;
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

// The same in the form that the weights' format is multiplied in.
template <class Slice, class Store>
NODEWRIGHT_DEVICE void stream_stored(const WeightIn& w, OutputRange range, WeightBatch& batch, Slice& slice,
                                     float* partial, Store store) {
#ifdef __CUDACC_RTC__
  if constexpr (kDiagonal) {
    HalfSlice halves(slice);
    stream_weights(stored(w), range, batch, halves, partial, store);
    return;
  }
#endif
  stream_weights(stored(w), range, batch, slice, partial, store);
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

// What a kernel without a norm does: requests weights, waits, loads the rows of x, streams, stores. `args`: Product or
// the like, from RowsIn; store(first_row, live, segment, rows, sum) as in stream_weights, with the first
// of the block's rows of x and how many of its kTile count; before(first_row, live, segment, rows): of the first
// segment, as soon as the inputs are there.
template <class Args, class Before, class Store>
NODEWRIGHT_DEVICE void project_rows(const Args& args, Before before, Store store) {
  float* partial = reinterpret_cast<float*>(shared_memory());
  const OutputRange range = block_outputs(args.w.outputs, 1);
  WeightBatch batch;
  request_first_batch(batch, args.w, range);
  release_dependents();
  wait_for_inputs();

  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t live = kSingleRow != 0 ? 1 : args.n_live.data[0] - first_row;
  before(first_row, live, range.first, min(static_cast<int>(kSegment), range.last - range.first));
  RowSlice slice;
  load_slice(slice, args.from.x.data + first_row * args.from.x_stride, args.from.x_stride);
  stream_stored(args.w, range, batch, slice, partial,
                [&](int segment, int rows, auto sum) { store(first_row, live, segment, rows, sum); });
}

// The scales of the outputs that this thread ends first of the block's first segment, where rows have one: requested
// with the first weights, since the next kernel waits for what is loaded at the end.
template <int kUnit>
struct FirstScales {
  float of[kUnit];
  int first;  // output that of[0] is of

  NODEWRIGHT_DEVICE explicit FirstScales(const WeightIn& w) {
    if constexpr (kScaledRows) {
      const OutputRange range = block_outputs(w.outputs, kUnit);
      const int results = min(static_cast<int>(kSegment), range.last - range.first) / kUnit;
      first = range.first + kUnit * sum_place(static_cast<int>(threadIdx.x), results).r;
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kUnit; ++i) of[i] = first + i < range.last ? scale_of<kStride>(w, first + i) : 0.0f;
    }
  }
  // The sum of an output, number `part` of its unit, with its scale and bias.
  NODEWRIGHT_DEVICE float ended(const WeightIn& w, int output, int part, float sum) const {
    float scale = 1.0f;
    if constexpr (kScaledRows) scale = output == first + part ? of[part] : scale_of<kStride>(w, output);
    return nodewright::ended<kBias>(w, output, sum, scale);
  }
};

}  // namespace nodewright
