// residual[m, n] += sum over ranks r of values[r, m, n], in the order of the ranks, or sum[m, n] = it. Block (b, c):
// columns b * 256 .. + 255 of rows c, c + gridDim.y, ...; with kLanes block b: the outputs that block b of the tiles
// has, of all rows.
#include "kernels_src/collective/gathered_add.h"
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/device/output_range.cuh"

namespace nodewright {

NODEWRIGHT_DEVICE float gathered_value(const GatheredAdd& args, int64_t rank, int64_t at) {
  if constexpr (kBulk != 0)
    return to_float(args.values_bf16.data[rank * args.values_stride + at]);
  else
    return args.values.data[rank * args.values_stride + at];
}

// Returns what stands at (row, n) then.
NODEWRIGHT_DEVICE float put_gathered(const GatheredAdd& args, int64_t row, int64_t n) {
  const int64_t at = row * args.to.stride + n;
  float sum = gathered_value(args, 0, at);
  NODEWRIGHT_UNROLL_BY(8)
  for (int64_t rank = 1; rank < kRanks; ++rank) sum = __fadd_rn(sum, gathered_value(args, rank, at));
  if constexpr (kAdds != 0) {
    sum = __fadd_rn(args.to.residual.data[at], sum);
    args.to.residual.data[at] = sum;
  } else {
    args.to.sum.data[at] = sum;
  }
  if constexpr (kLeavesGained != 0)
    args.to.next.gained.data[row * args.cols + n] = to_bf16(sum * to_float(args.to.next.gain.data[n]));
  return sum;
}

// Rows of a part of the squares.
NODEWRIGHT_DEVICE int64_t rows_of_squares(const GatheredAdd& args) {
  return (static_cast<int64_t>(args.to.next.gained.count) / args.cols + 7) / 8 * 8;
}

// Columns of this block, and after them the squares of one row after the other.
NODEWRIGHT_DEVICE void add_columns(const GatheredAdd& args, int64_t live) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kGatheredAddThreads + threadIdx.x;
  for (int64_t row = blockIdx.y; row < live; row += gridDim.y) {
    const float sum = n < args.cols ? put_gathered(args, row, n) : 0.0f;
    if constexpr (kLeavesGained != 0) {
      const float squares = block_sum(sum * sum, reinterpret_cast<float*>(shared_memory()));
      if (threadIdx.x == 0) args.to.next.squares.data[blockIdx.x * rows_of_squares(args) + row] = squares;
    }
  }
}

// The squares in the order of the tiles, whose lanes take every kLanes-th output of 32 and are added in halves: thread
// m has row m.
NODEWRIGHT_DEVICE void add_as_tiles(const GatheredAdd& args, int64_t live) {
  constexpr int kParts = static_cast<int>(kSplits), kOfRow = kLanes == 0 ? 1 : static_cast<int>(kLanes);
  const OutputRange range = block_outputs<kSplits>(args.cols);
  const int outputs = range.last - range.first, part = static_cast<int>(blockIdx.x % kSplits);
  const int first = range.first + outputs * part / kParts, last = range.first + outputs * (part + 1) / kParts;
  const int64_t own = static_cast<int64_t>(last - first) * live;
  for (int64_t i = threadIdx.x; i < own; i += kGatheredAddThreads)
    put_gathered(args, i / (last - first), first + i % (last - first));
  __syncthreads();
  const int64_t rows = rows_of_squares(args);
  for (int64_t row = threadIdx.x; row < rows; row += kGatheredAddThreads) {
    float of_lane[kOfRow] = {};
    NODEWRIGHT_UNROLL
    for (int lane = 0; lane < kOfRow; ++lane)
      for (int n = first + lane; n < last && row < live; n += 32) {
        float squares = 0.0f;
        for (int at = n; at < n + 32 && at < last; at += kOfRow) {
          const float sum = args.to.residual.data[row * args.to.stride + at];
          squares = fmaf(sum, sum, squares);
        }
        of_lane[lane] = __fadd_rn(of_lane[lane], squares);
      }
    NODEWRIGHT_UNROLL
    for (int half = kOfRow / 2; half > 0; half /= 2) NODEWRIGHT_UNROLL
    for (int lane = 0; lane < half; ++lane) of_lane[lane] = __fadd_rn(of_lane[lane], of_lane[lane + half]);
    args.to.next.squares.data[blockIdx.x * rows + row] = of_lane[0];
  }
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(gathered_add, GatheredAdd, kGatheredAddThreads) {
  release_dependents();
  wait_for_inputs();
  if constexpr (kLanes == 0)
    add_columns(args, args.n_live.data[0]);
  else
    add_as_tiles(args, args.n_live.data[0]);
}
