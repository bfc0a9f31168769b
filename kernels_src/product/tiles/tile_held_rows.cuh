// Rows of x that stay in registers while a matrix is streamed past them: each warp has its columns of all rows. Where a
// block cannot hold all columns, kSplits blocks of a cluster share them, and their sums meet in shared memory. Every
// weight is read once, and of x no block reads more than its columns, once.
//
// Constants: those of product/tiles/tile_stream.cuh; kCols = kStride.
#pragma once

#include "kernels_src/device/cluster.cuh"
#include "kernels_src/product/tiles/tile_stream.cuh"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Blocks of an SM, for launch bounds: more than two spans in registers leave too few for a second block.
constexpr int kBlocksOfSm = kHeld != 0 && kSpans > 2 ? 1 : static_cast<int>(512 / kThreads);

struct HeldRows {
  static constexpr int kStageBytes = 0;  // in the ring
  static constexpr int kGainWords = 0;
  static_assert(kHeld == 0 || (kCols == kStride && kPieces == 1 && kColumns % 8 == 0));

  uint4 held[kSpans][2][kTiles];

  // Requests `x`: [rows, stride], from the block's first column on. After the wait.
  NODEWRIGHT_DEVICE HeldRows(const bf16* x, int64_t stride, int rows) {
    each_span([&](int span, int n, uint4& first, uint4& second) {
      request_span(first, second, [&](int g, int word) {
        const int row = n * 8 + g, at = span_column(span) + word * 8;
        // Another row in the place of one that is not there: no instruction waits for what is loaded.
        const bf16* const from = x + (row < rows ? row : rows - 1) * stride + at;
        return kExact || at < kColumns ? load_16(from) : uint4{0u, 0u, 0u, 0u};
      });
    });
  }
  // Once, before the first fragment. Waits for what was requested.
  NODEWRIGHT_DEVICE void arrange() {
    each_span([](int, int, uint4& first, uint4& second) { arrange_span(first, second); });
  }
  NODEWRIGHT_DEVICE uint4 fragment(const unsigned char*, int, int span, int s, int n) const { return held[span][s][n]; }

 private:
  // f(span, n, words of both steps)
  template <class F>
  NODEWRIGHT_DEVICE void each_span(const F& f) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int span = 0; span < kSpans; ++span) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < kTiles; ++n) f(span, n, held[span][0][n], held[span][1][n]);
    }
  }
};

// Two sums of a block's columns, as they lie in its shared memory.
struct alignas(8) SumPair {
  float first, second;
};

// The whole of a kernel: requests weights, waits, holds `x` [rows, stride], streams weights, stores. `live`, of the
// rows of x, is set before the first call of prepare, before or store. request() is called once, while x is
// on its way, and prepare(shared) once, with kPrepared bytes that stay. before and store are stream_tiles';
// with kSplits they are called once the sums are complete, of each row of x by the same threads for their j-th pair as
// ever.
template <int kPrepared, class Request, class Prepare, class Before, class Store>
NODEWRIGHT_DEVICE void tile_project_held(const bf16* weight, const bf16* x, int64_t stride, int rows,
                                         const int32_t* n_live, OutputRange range, int& live, Request request,
                                         Prepare prepare, Before before, Store store) {
  using Ring = TileRing<HeldRows>;
  const int rank = kSplits > 1 ? cluster_rank() : 0, column = rank * kColumns;
  Ring ring(weight + column, range, shared_memory());
  ring.start();
  release_dependents();
  wait_for_inputs();
  live = n_live[0];
  HeldRows held(x + column, stride, rows);
  request();
  held.arrange();
  unsigned char* const prepared = shared_memory() + Ring::kBytes;
  prepare(prepared);
  auto* const of_warps = reinterpret_cast<float*>(prepared + kPrepared);
  if constexpr (kSplits == 1) {
    stream_tiles(ring, held, of_warps, before, store);
  } else {
    auto* const parts = reinterpret_cast<SumPair*>(of_warps + 2 * kWarps * kWarpSums);  // [kTokens][pairs]
    const int pairs = (range.last - range.first + 1) / 2;
    stream_tiles(
        ring, held, of_warps, [](int, int, int) {},
        [&](int, int n, int m, float first, float second) {
          parts[m * pairs + (n - range.first) / 2] = SumPair{first, second};
        });
    cluster_arrive();
    cluster_wait();
    const int first_pair = pairs * rank / static_cast<int>(kSplits),  // of the block's share
        last_pair = pairs * (rank + 1) / static_cast<int>(kSplits);
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < kOwned; ++j) {
      const int own = static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads), m = own / kHalfTile;
      if (own >= kPairsOfTile || m >= live) break;
      NODEWRIGHT_NO_UNROLL
      for (int pair = first_pair + own % kHalfTile; pair < last_pair; pair += kHalfTile) {
        const int n = range.first + 2 * pair;
        before(j, n, m);
        SumPair of_block[kSplits];
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int r = 0; r < kSplits; ++r) of_block[r] = load_from_block(r, parts + m * pairs + pair);
        float first = 0.0f, second = 0.0f;
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int r = 0; r < kSplits; ++r) first += of_block[r].first, second += of_block[r].second;
        store(j, n, m, first, second);
      }
    }
    cluster_arrive_relaxed();  // before a block's memory goes
    cluster_wait();
  }
}

// The sums of squares that come beside rows of a kernel before (kLeavesGained), a part of every block that left some:
// from.squares, [parts, kTokens].
struct RowScales {
  static constexpr int kBytes = kWarps * kTokens * 4;
  static constexpr int kAllAtOnce = (kPartsOfSms + kWarps - 1) / kWarps;
  static constexpr int kPartsAtOnce = kAllAtOnce < 20 ? kAllAtOnce : 20;  // of a lane, on their way

  float parts[kPartsAtOnce];  // of row lane_of_warp()
  float of_pair[kOwned];      // of the row of a thread's j-th pair

  // The j-th of the warp's parts, every kWarps-th of `from`.
  NODEWRIGHT_DEVICE static float part_of(const ResidualIn& from, int j) {
    const int token = lane_of_warp(), left = static_cast<int>(from.squares.count) / kTokens - warp_of_block();
    const float* const first = from.squares.data + (warp_of_block() * kTokens + token);
    return j * kWarps < left && token < kTokens ? first[j * kWarps * kTokens] : 0.0f;
  }
  // After the wait.
  NODEWRIGHT_DEVICE void request(const ResidualIn& from) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < kPartsAtOnce; ++j) parts[j] = part_of(from, j);
  }
  NODEWRIGHT_DEVICE void sum(const ResidualIn& from, float* of_warps /*[kWarps][kTokens]*/) {
    float sum = 0.0f;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < kPartsAtOnce; ++j) sum += parts[j];
    const int count = static_cast<int>(from.squares.count) / kTokens;
    NODEWRIGHT_NO_UNROLL
    for (int j = kPartsAtOnce; j * kWarps < count; ++j) sum += part_of(from, j);
    if (lane_of_warp() < kTokens) of_warps[warp_of_block() * kTokens + lane_of_warp()] = sum;
    __syncthreads();
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < kOwned; ++j) {
      const int own = static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads);
      if (own >= kPairsOfTile) break;
      float all = 0.0f;
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int w = 0; w < kWarps; ++w) all += of_warps[w * kTokens + own / kHalfTile];
      of_pair[j] = 1.0f / sqrtf(all / static_cast<float>(kCols) + from.eps);
    }
  }
};

}  // namespace nodewright
