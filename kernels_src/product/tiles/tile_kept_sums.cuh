// The sums of a block's outputs handed on one by one as its tiles end, and kept in its shared memory, where all rows
// are gone through once more when the last has been made: by kRowLanes lanes a row, neighbours in neighbouring lanes.
//
// Constants: those of product/tiles/tile_stream.cuh.
#pragma once

#include "kernels_src/product/tiles/tile_rows.cuh"

namespace nodewright {

// So that a block goes through all rows of x at once where it has the threads, kColumnsAtOnce outputs of each. Eight
// neighbours are 64 bytes of packets.
constexpr int kRowLanes = kThreads >= 32 * kTokens ? 32 : kThreads >= 16 * kTokens ? 16 : 8;
constexpr int kColumnsAtOnce = 32, kKeptAtOnce = kColumnsAtOnce / kRowLanes;

// What is kept of a block's range, of which a block of a cluster ends a part.
struct KeptSums {
  float* of;  // [kTokens][outputs of `range`]
  OutputRange range, own;

  NODEWRIGHT_DEVICE float& at(int n, int m) const { return of[m * (range.last - range.first) + n - range.first]; }
};

// Calls f(m) for the rows of x that this thread shares, whole warps at once.
template <class Function>
NODEWRIGHT_DEVICE void for_each_shared_row(Function f) {
  constexpr int kRowsAtOnce = static_cast<int>(kThreads) / kRowLanes;
  NODEWRIGHT_NO_UNROLL
  for (int m = static_cast<int>(threadIdx.x) / kRowLanes; m < kTokens; m += kRowsAtOnce) f(m);
}
// The first output of `own` that this thread has of a row.
NODEWRIGHT_DEVICE int first_kept(OutputRange own) { return own.first + lane_of_warp() % kRowLanes; }
// Calls f(first) for the first of up to kKeptAtOnce outputs of `own`, kRowLanes apart, that this thread has of a row.
template <class Function>
NODEWRIGHT_DEVICE void for_each_kept(OutputRange own, Function f) {
  NODEWRIGHT_NO_UNROLL
  for (int n = first_kept(own); n < own.last; n += kColumnsAtOnce) f(n);
}

// Finishes the block's share of what the cluster's blocks have kept of their columns.
template <class Finish>
NODEWRIGHT_DEVICE void finish_cluster_sums(const KeptSums& kept, int live, Finish finish) {
  cluster_arrive();
  cluster_wait();
  for_each_shared_row([&](int m) {
    if (m >= live) return;
    for_each_kept(kept.own, [&](int at) {
      float of_block[kKeptAtOnce][kSplits];
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int j = 0; j < kKeptAtOnce; ++j) {
        const int n = at + j * kRowLanes;
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int r = 0; r < kSplits; ++r)
          of_block[j][r] = n < kept.own.last ? load_from_block(r, &kept.at(n, m)) : 0.0f;
      }
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int j = 0; j < kKeptAtOnce; ++j) {
        const int n = at + j * kRowLanes;
        if (n >= kept.own.last) break;
        float sum = 0.0f;
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int r = 0; r < kSplits; ++r) sum += of_block[j][r];
        kept.at(n, m) = finish(n, m, sum);  // no other block reads its own part
      }
    });
  });
  cluster_arrive_relaxed();  // what others have has been read
}

// All of a kernel without a norm up to its finished sums, of rows that are streamed or held. ready(own) is called once,
// by all threads, after the wait, when `live`, of the rows of x, is set. What finish(n, m, sum) makes of output n and
// row m < live stays, and at the end all of it is there for all threads that share the row. end_kept_sums() comes last.
template <class Args, class Ready, class Finish>
NODEWRIGHT_DEVICE KeptSums tile_project_kept(const Args& args, int& live, Ready ready, Finish finish) {
  const BlockRanges ranges(args.w.outputs, 1);
  const OutputRange range = ranges.now;
  const int outputs = range.last - range.first, block = kSplits > 1 ? cluster_rank() : 0;
  constexpr auto kBlocks = static_cast<int>(kSplits);
  KeptSums kept{
      nullptr, range, {range.first + outputs * block / kBlocks, range.first + outputs * (block + 1) / kBlocks}};
  const auto nothing = [](int, int, int, int) {};
  const auto stream = [&](auto& ring, const auto& rows, unsigned char* free) {
    auto* const of_warps = reinterpret_cast<float*>(free);
    kept.of = of_warps + 2 * kWarps * kWarpSums;
    stream_tiles<1>(
        ring, rows, of_warps, nothing,
        [&](int, int n, int m, float sum, float, int) {
          if (m < live) kept.at(n, m) = kSplits > 1 ? sum : finish(n, m, sum);
        },
        [](int) {});
  };
  if constexpr (kHeld != 0) {
    using Ring = TileRing<HeldRows>;
    const int column = block * kColumns;
    Ring ring(args.w, ranges, shared_memory(), column);
    ring.start();
    release_dependents();
    wait_for_inputs();
    live = args.n_live.data[0];
    ready(kept.own);
    HeldRows held(args.from.x.data + column, args.from.x_stride, rows_of(args.from));
    held.arrange();
    stream(ring, held, shared_memory() + Ring::kBytes);
  } else {
    using Ring = TileRing<StreamedRows>;
    Ring ring(args.w, ranges, shared_memory());
    ring.start();
    const StreamedRows rows(args.from);
    release_dependents();
    wait_for_inputs();
    live = args.n_live.data[0];
    ready(kept.own);
    stream(ring, rows, shared_memory() + Ring::kBytes);
  }
  if constexpr (kSplits > 1)
    finish_cluster_sums(kept, live, finish);
  else
    __syncthreads();
  return kept;
}

// Before a block's memory goes.
NODEWRIGHT_DEVICE void end_kept_sums() {
  if constexpr (kSplits > 1) cluster_wait();
}

}  // namespace nodewright
