// A weight matrix streamed once past 8 to 32 rows of x on tensor cores. Included by kernels that end in different
// epilogues; device/matvec.cuh is the same for one row, with ordinary arithmetic.
//
// 8 rows of W are the right operand of mma.m16n8k16, 16 rows of x the left one, half of it zero where there are 8. The
// sum over columns may go in any order that both operands agree on: lane (g, t) holds columns 8t .. 8t + 7 of a step of
// 32 columns, of W's rows g and g + 8 and of x's row g, as 16-byte words whose pairs of registers are operands as they
// come. A lane copies the words that it will multiply, so it waits for no other: each warp has a ring of spans on its
// way to shared memory, 16 rows of W by 64 columns. (In registers instead, ptxas gathers the loads behind the last use
// of a group of weights, and nothing is on its way while that is waited for.) Warps take the spans of a row in turn;
// their sums meet in shared memory, in the order of the warps. So a row's bits depend on the shape of W only. Block b
// owns a contiguous range of outputs, so bytes are balanced over SMs to within one row.
//
// Constants: kTokenTiles (of 8 rows of x), kCols, kStride (W's row stride, elements), kThreads, kSpans (of a warp),
// kRing (kernels_src/tile_shape.h).
#pragma once

#include "kernels_src/device/tensor.cuh"

#ifndef __CUDACC_RTC__  // the host compiler needs several times as long for unrolled loops, which no register waits for
#undef NODEWRIGHT_UNROLL
#define NODEWRIGHT_UNROLL
#endif

namespace nodewright {

constexpr int kWarps = static_cast<int>(kThreads / 32);
constexpr int kTiles = static_cast<int>(kTokenTiles);
constexpr int kTokens = 8 * kTiles;
constexpr int kPairs = (kTiles + 1) / 2;
constexpr int kTileRows = 16;  // of W
constexpr int kHeld = static_cast<int>(kRing);
constexpr bool kExact = kSpans * kWarps * 64 == kStride;  // no warp lacks columns
// Floats between the sums of two rows of x: half a warp's lanes write pairs of theirs to 32 banks.
constexpr int kSumStride = 24;
constexpr int kWarpSums = kTokens * kSumStride;
constexpr int kWordStride = 32 * 8;  // elements between two words of a lane
constexpr int kHalfTile = kTileRows / 2, kPairsOfTile = kHalfTile * kTokens;
// Pairs of outputs, two rows of W and a row of x, that a thread stores of a tile.
constexpr int kOwned = static_cast<int>((kPairsOfTile + kThreads - 1) / kThreads);

NODEWRIGHT_DEVICE int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }
NODEWRIGHT_DEVICE int warp_of_block() { return static_cast<int>(threadIdx.x / 32); }

// Where the warp's span begins in a row, and which of a step's columns are this lane's.
NODEWRIGHT_DEVICE int span_column(int span) { return (span * kWarps + warp_of_block()) * 64; }
NODEWRIGHT_DEVICE int lane_column() { return lane_of_warp() % 4 * 8; }

// The range of weight rows of this block: outputs are dealt in units of `unit` rows.
struct OutputRange {
  int first, last;
};
NODEWRIGHT_DEVICE OutputRange block_outputs(int64_t outputs, int unit) {
  const int64_t units = outputs / unit, blocks = gridDim.x, b = blockIdx.x;
  return {static_cast<int>(units * b / blocks) * unit, static_cast<int>(units * (b + 1) / blocks) * unit};
}

// What is on its way, of each span [2 steps][rows g, g + 8] words of W, and then of rows that are streamed.
template <class Rows>
struct SpanRing {
  static constexpr int kSlotWords = 4 + Rows::kWords;
  static constexpr int kBytes = kWarps * kHeld * kSlotWords * 512;
  static constexpr int kMostCopies = kSlotWords > kSpans ? kSlotWords : static_cast<int>(kSpans);

  bf16* slots;  // this lane's words
  const bf16* weight;
  int row, last, span;        // of the next request; row: this lane's upper one
  const bf16 *upper, *lower;  // the two rows, at this lane's columns of the warp's first span
  AsyncCopies<kMostCopies, 2 * kHeld + 1> copies{};

  NODEWRIGHT_DEVICE SpanRing(const bf16* w, OutputRange range, unsigned char* shared)
      : slots(reinterpret_cast<bf16*>(shared) + (warp_of_block() * kHeld * kSlotWords * 32 + lane_of_warp()) * 8),
        weight(w),
        row(range.first + lane_of_warp() / 4),
        last(range.last),
        span(0) {
    point();
  }
  NODEWRIGHT_DEVICE void point() {
    upper = weight + static_cast<int64_t>(row) * kStride + span_column(0) + lane_column();
    lower = upper + 8 * kStride;
  }
  NODEWRIGHT_DEVICE bf16* slot_words(int slot) const { return slots + slot * kSlotWords * kWordStride; }
  NODEWRIGHT_DEVICE bf16* slot_rows(int slot) const { return slot_words(slot) + 4 * kWordStride; }

  // The next span, tile after tile; past the block's last row nothing is read.
  NODEWRIGHT_DEVICE void request_weights(int slot) {
    const int offset = span * kWarps * 64;
    bf16* const words = slot_words(slot);
    NODEWRIGHT_UNROLL
    for (int s = 0; s < 2; ++s) {
      const bool counts = kExact || span_column(span) + s * 32 + lane_column() < kStride;
      copies.request(words + 2 * s * kWordStride, upper + offset + s * 32, counts && row < last);
      copies.request(words + (2 * s + 1) * kWordStride, lower + offset + s * 32, counts && row + 8 < last);
    }
    if (++span == kSpans) {
      span = 0, row += kTileRows;
      point();
    }
  }
  NODEWRIGHT_DEVICE void start() {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      request_weights(i);
      copies.close_group();
    }
  }
};

// Of 16 rows of x with the tile's first and last 8 rows of W.
struct PairSums {
  float upper[4], lower[4];
};

#ifdef __CUDACC_RTC__
// sums += x . W over a step, of the rows of x in two words
NODEWRIGHT_DEVICE void multiply_step(PairSums& sums, uint4 upper, uint4 lower, uint4 x, uint4 x_8) {
  const uint32_t first[4] = {x.x, x_8.x, x.y, x_8.y}, second[4] = {x.z, x_8.z, x.w, x_8.w};
  mma_16x8x16(sums.upper, first, upper.x, upper.y);
  mma_16x8x16(sums.lower, first, lower.x, lower.y);
  mma_16x8x16(sums.upper, second, upper.z, upper.w);
  mma_16x8x16(sums.lower, second, lower.z, lower.w);
}
#else
// A span, for a whole warp at once.
struct SpanLane {
  PairSums* sums;         // [kPairs]
  uint4 weights[2][2];    // [2 steps][rows g, g + 8]
  uint4 x[2][kPairs][2];  // [2 steps][kPairs][rows g, g + 8]
};
NODEWRIGHT_VECTORIZED void multiply_span_of(SpanLane* const* lanes) {
  for (int p = 0; p < kPairs; ++p)
    for (int below = 0; below < 2; ++below) {
      const auto sums = [&](int lane) { return below == 0 ? lanes[lane]->sums[p].upper : lanes[lane]->sums[p].lower; };
      emulation::Sums16x8 c;
      emulation::take_sums(c, sums);
      for (int step = 0; step < 4; ++step) {  // of 16 columns: half a lane's words
        const auto word = [&](const uint4& words, int i) {
          uint32_t held[4];
          __builtin_memcpy(held, &words, 16);
          return held[step % 2 * 2 + i];
        };
        emulation::Left a;
        emulation::Right b;
        emulation::take_left(a, [&](int lane, int i) { return word(lanes[lane]->x[step / 2][p][i % 2], i / 2); });
        emulation::take_right(b, [&](int lane, int i) { return word(lanes[lane]->weights[step / 2][below], i); });
        emulation::multiply(c, a, b);
      }
      emulation::give_sums(c, sums);
    }
}
#endif

// A span of a tile. `words`, `rows`: in the ring.
template <class Rows>
NODEWRIGHT_DEVICE void multiply_span(PairSums (&sums)[kPairs], const Rows& x, const bf16* words, const bf16* rows,
                                     int span) {
#ifdef __CUDACC_RTC__
  NODEWRIGHT_UNROLL
  for (int s = 0; s < 2; ++s) {
    const uint4 upper = load_16(words + 2 * s * kWordStride), lower = load_16(words + (2 * s + 1) * kWordStride);
    NODEWRIGHT_UNROLL
    for (int p = 0; p < kPairs; ++p)
      multiply_step(sums[p], upper, lower, x.fragment(rows, span, s, 2 * p),
                    2 * p + 1 < kTiles ? x.fragment(rows, span, s, 2 * p + 1) : uint4{0u, 0u, 0u, 0u});
  }
#else
  SpanLane mine{sums, {}, {}};  // zeros for rows that no tile has
  for (int s = 0; s < 2; ++s) {
    for (int i = 0; i < 2; ++i) mine.weights[s][i] = load_16(words + (2 * s + i) * kWordStride);
    for (int n = 0; n < kTiles; ++n) mine.x[s][n / 2][n % 2] = x.fragment(rows, span, s, n);
  }
  emulation::with_warp(0xffffffffu, mine, [](SpanLane* const* lanes, uint32_t) { multiply_span_of(lanes); });
#endif
}

// Runs this block's outputs through a ring that has been started. A thread stores kOwned pairs of outputs of a tile at
// most: before(j, row, m) is called early for its j-th, and store(j, row, m, first, second) with the dot products of
// rows `row` and `row` + 1 of W with row m of x; row + 1 may be past the last.
template <class Rows, class Before, class Store>
NODEWRIGHT_DEVICE void stream_tiles(OutputRange range, SpanRing<Rows>& ring, const Rows& x,
                                    float* partial /*[2][kWarps][kTokens][kSumStride]*/, Before before, Store store) {
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
  float* now = partial;
  float* other = partial + kWarps * kWarpSums;
  int slot = 0;
  if constexpr (Rows::kWords > 0) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      x.request(ring.copies, ring.slot_rows(i), i % static_cast<int>(kSpans));
      ring.copies.close_group();
    }
  }
  for (int tile = range.first; tile < range.last; tile += kTileRows) {
    const auto each_owned = [&](auto f) {
      NODEWRIGHT_UNROLL
      for (int j = 0; j < kOwned; ++j) {
        const int i = static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads), r = i % kHalfTile * 2;
        if (i < kPairsOfTile && tile + r < range.last) f(j, r, i / kHalfTile);
      }
    };
    each_owned([&](int j, int r, int m) { before(j, tile + r, m); });
    PairSums sums[kPairs] = {};
    for (int span = 0; span < kSpans; ++span) {
      ring.copies.template wait<kHeld - 1>();
      multiply_span(sums, x, ring.slot_words(slot), ring.slot_rows(slot), span);
      if constexpr (Rows::kWords > 0) x.request(ring.copies, ring.slot_rows(slot), ring.span);
      ring.request_weights(slot);
      ring.copies.close_group();
      slot = slot + 1 == kHeld ? 0 : slot + 1;
    }
    float* mine = now + warp_of_block() * kWarpSums + g * kSumStride + 2 * t;
    NODEWRIGHT_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 2; ++i) {
        mine[n * 8 * kSumStride + i] = sums[n / 2].upper[n % 2 * 2 + i];
        mine[n * 8 * kSumStride + 8 + i] = sums[n / 2].lower[n % 2 * 2 + i];
      }
    }
    __syncthreads();
    each_owned([&](int j, int r, int m) {
      const float* from = now + m * kSumStride + r;
      float first = 0.0f, second = 0.0f;
      NODEWRIGHT_UNROLL
      for (int w = 0; w < kWarps; ++w) first += from[w * kWarpSums], second += from[w * kWarpSums + 1];
      store(j, tile + r, m, first, second);
    });
    float* const swapped = now;
    now = other, other = swapped;  // written again when every thread has passed the next barrier
  }
  ring.copies.template wait<0>();
}

}  // namespace nodewright
