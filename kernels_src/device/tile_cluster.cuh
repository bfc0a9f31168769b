// tile_stream.cuh with the columns of W dealt to the blocks of a cluster, which share a range of outputs: a block needs
// its own columns of x only, and its lanes hold them in registers. What the warps of a block sum up goes to the block
// that finishes the row of x; there the parts of the blocks are summed, in their order.
//
// Constants: those of device/tile_stream.cuh. A range is at most kRangeRows rows of W, in whole tiles.
#pragma once

#include "kernels_src/device/cluster.cuh"
#include "kernels_src/device/tile_stream.cuh"

namespace nodewright {

constexpr int kFinished = kTokens / kBlocks;  // rows of x that a block finishes
static_assert(kTokens % kBlocks == 0);
constexpr int kRange = static_cast<int>(kRangeRows);

// The lane's words of all rows of x.
struct HeldRows {
  static constexpr int kWords = 0;  // in the ring

  uint4 words[kSpans][2][kTiles];

  NODEWRIGHT_DEVICE uint4 fragment(const bf16*, int span, int s, int n) const { return words[span][s][n]; }
};

// Shared memory behind the ring, of the block and of what others send to it.
struct ClusterSums {
  static constexpr int kFloats = 2 * kWarps * kWarpSums + kBlocks * kFinished * (kRange + 1) + kWarps * kTokens;

  float* partial;           // [2][kWarps][kTokens][kSumStride]
  float* received;          // [kBlocks][kFinished][kRange]
  float* received_squares;  // [kBlocks][kFinished]
  float* squares;           // [kWarps][kTokens]; with a norm

  NODEWRIGHT_DEVICE explicit ClusterSums(unsigned char* shared)
      : partial(reinterpret_cast<float*>(shared)),
        received(partial + 2 * kWarps * kWarpSums),
        received_squares(received + kBlocks * kFinished * kRange),
        squares(received_squares + kBlocks * kFinished) {}
};

// args.x, bf16 rows args.x_stride apart, of which the first kCols elements count.
template <class Args>
NODEWRIGHT_DEVICE void hold_rows(HeldRows& x, const Args& args) {
  const int g = lane_of_warp() / 4;
  const int rows = static_cast<int>(args.x.count / static_cast<uint64_t>(args.x_stride)) - g;
  const bf16* from = args.x.data + g * args.x_stride + lane_column();
  NODEWRIGHT_UNROLL
  for (int span = 0; span < kSpans; ++span) {
    NODEWRIGHT_UNROLL
    for (int s = 0; s < 2; ++s) {
      const int column = span_column(span) + s * 32, left = static_cast<int>(kCols) - column - lane_column();
      NODEWRIGHT_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        const bool counts = n * 8 < rows && (kExact || left > 0);
        x.words[span][s][n] =
            counts ? up_to_end(load_16(from + n * 8 * args.x_stride + column), left) : uint4{0u, 0u, 0u, 0u};
      }
    }
  }
}

// Runs the cluster's outputs through a ring that has been started; before and store as of stream_tiles, of the range's
// outputs for the rows of x that this block finishes. With a norm, sums.squares are complete but for a barrier. The
// block has arrived at the cluster's barrier once.
template <bool kSquares, class Before, class Store>
NODEWRIGHT_DEVICE void stream_in_cluster(OutputRange range, SpanRing<HeldRows>& ring, const HeldRows& x,
                                         const ClusterSums& sums, Before before, Store store) {
  float* now = sums.partial;
  float* other = now + kWarps * kWarpSums;
  const int self = block_of_cluster();
  int slot = 0;
  cluster_wait();  // all blocks have started
  for (int tile = range.first; tile < range.last; tile += kTileRows) {
    PairSums of_warp[kPairs] = {};
    NODEWRIGHT_UNROLL
    for (int span = 0; span < kSpans; ++span) {
      ring.copies.template wait<kHeld - 1>();
      multiply_span(of_warp, x, ring.slot_words(slot), ring.slot_rows(slot), span);
      ring.request_weights(slot);
      ring.copies.close_group();
      slot = slot + 1 == kHeld ? 0 : slot + 1;
    }
    leave_sums(of_warp, now);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kPairsOfTile; i += static_cast<int>(kThreads)) {
      const int r = i % kHalfTile * 2, m = i / kHalfTile;
      float* to = sums.received + (self * kFinished + m % kFinished) * kRange + tile - range.first + r;
      store_to_block(m / kFinished, reinterpret_cast<float2*>(to), sum_of_warps(now, r, m));
    }
    float* const swapped = now;
    now = other, other = swapped;  // written again when every thread has passed the next barrier
  }
  if constexpr (kSquares)
    for (int m = static_cast<int>(threadIdx.x); m < kTokens; m += static_cast<int>(kThreads)) {
      float sum = 0.0f;
      NODEWRIGHT_UNROLL
      for (int w = 0; w < kWarps; ++w) sum += sums.squares[w * kTokens + m];
      store_to_block(m / kFinished, sums.received_squares + self * kFinished + m % kFinished, sum);
    }
  cluster_arrive();
  const int half = (range.last - range.first + 1) / 2;
  const auto each_owned = [&](auto f) {
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kOwned; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads);
      if (i < half * kFinished) f(j, i % half * 2, i / half);
    }
  };
  each_owned([&](int j, int r, int m) { before(j, range.first + r, self * kFinished + m); });
  cluster_wait();
  each_owned([&](int j, int r, int m) {
    float first = 0.0f, second = 0.0f;
    NODEWRIGHT_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      const float* from = sums.received + (block * kFinished + m) * kRange + r;
      first += from[0], second += from[1];
    }
    store(j, range.first + r, self * kFinished + m, first, second);
  });
  ring.copies.template wait<0>();
}

// tile_project_rows of a cluster.
template <class Args, class Before, class Store>
NODEWRIGHT_DEVICE void cluster_project_rows(const Args& args, OutputRange range, int& live, Before before,
                                            Store store) {
  using Ring = SpanRing<HeldRows>;
  Ring ring(args.weight.data, range, shared_memory());
  ring.start();
  cluster_arrive();
  release_dependents();
  wait_for_inputs();
  live = args.n_live.data[0];
  HeldRows x;
  hold_rows(x, args);
  stream_in_cluster<false>(range, ring, x, ClusterSums(shared_memory() + Ring::kBytes), before, store);
}

}  // namespace nodewright
