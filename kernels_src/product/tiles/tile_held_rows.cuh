// Rows of x that stay in registers while a matrix is streamed past them: each warp has its columns of all rows. Where a
// block cannot hold all columns, kSplits blocks of a cluster share them, and their sums meet in shared memory: when all
// tiles have been multiplied, or tile by tile. Every weight is read once, and of x no block reads more than its
// columns, once.
//
// Constants: those of product/tiles/tile_stream.cuh; kCols = kStride; kHeld 2: sums meet tile by tile.
#pragma once

#include "kernels_src/device/cluster_mail.cuh"
#include "kernels_src/product/tiles/tile_stream.cuh"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Blocks of an SM, for launch bounds: more than two spans in registers leave too few for a second block.
constexpr int kBlocksOfSm = kHeld != 0 && kSpans > 2 ? 1 : static_cast<int>(512 / kThreads);

struct HeldRows {
  static constexpr int kStageBytes = 0;  // in the ring
  static constexpr int kGainWords = 0;
  static_assert(kHeld == 0 || (kCols == kStride && kPieces == 1 && bytes_of_columns(kColumns) % 16 == 0));
  static_assert(!kScaledBlocks || kSplits == 1 || kColumns % 64 == 0, "a span has one block of scales");

  uint4 held[kSpans][2][kTiles];
  static constexpr int kFactors = kTurned ? 2 : kTiles;        // of rows g of each tile; turned of rows 2t and 2t + 1
  float factors[kFactors];                                     // what sums are multiplied by
  float of_ones[kInt4 ? kSpans : 1][kGroupsOfSpan][kFactors];  // sums with codes of 1: x's, of groups

  // Requests `x`: [rows, stride], from the block's first column on. After the wait.
  NODEWRIGHT_DEVICE HeldRows(const bf16* x, int64_t stride, int rows) {
    each_span([&](int span, int n, uint4& first, uint4& second) {
      request_span<Weights::step_column(1) / 8, Weights::kLaneColumns / 8>(first, second, [&](int g, int word) {
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
    if constexpr (kInHalves) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < kTiles; ++n) halve(n);
      if constexpr (kInt4) {
        sum_ones<0>();
        if constexpr (kGroupsOfSpan == 2) sum_ones<1>();
      }
    }
  }
  NODEWRIGHT_DEVICE float sum_of_ones(int span, int group, int i) const { return of_ones[span][group][i]; }
  NODEWRIGHT_DEVICE uint4 fragment(const unsigned char*, int, int span, int s, int n) const { return held[span][s][n]; }

 private:
  template <int kGroup>
  NODEWRIGHT_DEVICE void sum_ones() {
    constexpr int kFirst = kGroup, kLast = kGroupsOfSpan == 2 ? kGroup + 1 : 2;
    const auto ones = [](int, int) { return halves_of_int4(0x11111111u); };
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int span = 0; span < kSpans; ++span) {
      const auto fragment = [&](int s, int n) { return held[span][s][n]; };
      PairSums sums[kPairs] = {};
      if constexpr (kTurned)
        multiply_turned_span<true, kFirst, kLast>(sums[0], ones, fragment);
      else
        multiply_span<16, kTiles, true, kFirst, kLast>(sums, ones, fragment);
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < kFactors; ++i)
        of_ones[span][kGroup][i] = kTurned ? sums[0].upper[i] : sums[i / 2].upper[i % 2 * 2];
    }
  }
  // Makes row g of a tile a row of fp16, times a power of two that brings the norm of the warp's columns to 2^12 to
  // 2^14. Codes of int4 come as multiples of 2^-24, in odd pairs of 2^-20, and odd pairs of x are a sixteenth.
  NODEWRIGHT_DEVICE void halve(int n) {
    uint32_t squares[4] = {};
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < 2 * kSpans; ++i) {
      const uint4 of = held[i / 2][i % 2][n];
      squares[0] = add_squares(squares[0], of.x), squares[1] = add_squares(squares[1], of.y);
      squares[2] = add_squares(squares[2], of.z), squares[3] = add_squares(squares[3], of.w);
    }
    float sum = 0.0f;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < 4; ++i) sum += low_bf16(squares[i]) + high_bf16(squares[i]);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);  // the lanes that share the row
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    // Exponents of a power of two above the norm and of the factor, as fp32 stores them.
    const int norm = (static_cast<int>(float_to_bits(sum) >> 23) - 127) / 2 + 128, factor = 127 + 14 - (norm - 127);
    const float inverse = bits_to_float(static_cast<uint32_t>(254 - factor + (kInt4 ? 24 : 0)) << 23);
    if constexpr (kTurned) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 2; ++i) factors[i] = __shfl_sync(0xffffffffu, inverse, (lane_of_warp() % 4 * 2 + i) * 4);
    } else {
      factors[n] = inverse;
    }
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < 2 * kSpans; ++i) {
      uint4& of = held[i / 2][i % 2][n];
      const auto twice = [](int exponent) { return static_cast<uint32_t>(exponent << 23 | exponent << 7); };
      of = halves_of_bf16(of, twice(factor), twice(kInt4 ? factor - 4 : factor));
    }
  }
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

// The sums of the blocks of a cluster, which share the columns, tile by tile: each block gets all blocks' sums with its
// own rows of x, and adds them up in the order of the blocks.
struct MeetingSums {
  using Mail = ClusterMail<SumPair, kPairsOfTile>;

  Mail mail;
  SumPair met[kOwned];  // of the thread's pairs, of the tile before

  NODEWRIGHT_DEVICE explicit MeetingSums(unsigned char* shared) : mail(shared) {}

  NODEWRIGHT_DEVICE static int pair_of(int j) { return static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads); }
  // Sends those of a tile; of rows that it does not have, anything.
  NODEWRIGHT_DEVICE void send(const float* of_warps) {
    for_each_owned<2>(0, kRows, [&](int j, int r, int m) {
      const int pair = pair_of(j), place = cluster_rank() * kShareOfBlock + pair % kShareOfBlock;
      mail.send(pair / kShareOfBlock, place, sum_of_warps<2>(of_warps, r, m));
    });
    mail.close();
  }
  // f(j, r, m): as of for_each_owned, of the rows of x that are this block's.
  template <class F>
  NODEWRIGHT_DEVICE void for_each_own(int tile, int last, F f) const {
    for_each_owned<2>(tile, last, [&](int j, int r, int m) {
      if (is_of_block(pair_of(j))) f(j, r, m);
    });
  }
  // Waits for what was sent last.
  NODEWRIGHT_DEVICE void receive() {
    mail.wait();
    for_each_own(0, kRows, [&](int j, int, int) {
      met[j] = SumPair{0.0f, 0.0f};
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int r = 0; r < kSplits; ++r) {
        const SumPair part = mail.got(r * kShareOfBlock + pair_of(j) % kShareOfBlock);
        met[j].first += part.first, met[j].second += part.second;
      }
    });
  }
};

// stream_tiles of a block that has a part of the columns, and some rows of x of which it calls before and store. The
// sums of a tile meet while the next one is multiplied, and are stored after it.
template <class Before, class Store, class RangeEnd>
NODEWRIGHT_DEVICE void stream_meeting_tiles(TileRing<HeldRows>& ring, const HeldRows& held, float* of_warps,
                                            MeetingSums& sums, Before before, Store store, RangeEnd range_end) {
  BlockRanges ranges = ring.ranges;
  sums.mail.open();
  int slot = 0, tile = ranges.now.first;  // of what is stored next
  BlockRanges ahead = ring.ranges;
  int multiplied = tile;  // the tile that is multiplied next
  for (int i = 0; i <= ring.total; ++i) {
    float* const now = of_warps + i % 2 * (kWarps * kWarpSums);
    if (i < ring.total) {
      PairSums of_tile[kPairs] = {};
      ring.copies.wait(slot);
      multiply_stage(of_tile, ring, held, slot, multiplied, ahead.now.last, 0);
      multiplied += kRows;
      if (multiplied >= ahead.now.last && ahead.advance()) multiplied = ahead.now.first;
      leave_sums(of_tile, held, lane_of_warp() / 4, lane_of_warp() % 4, now);
    }
    if (i > 0) sums.receive();
    __syncthreads();  // the stage and what has come have been read, and the warps' sums are there
    if (i < ring.total) {
      if (i + kStages < ring.total) ring.request_weights(i + kStages, slot);
      ring.copies.close();
      slot = slot + 1 == kStages ? 0 : slot + 1;
      sums.send(now);
    }
    if (i > 0) {
      sums.for_each_own(tile, ranges.now.last, [&](int j, int r, int m) {
        store(j, tile + r, m, sums.met[j].first, sums.met[j].second, ranges.now.last);
      });
      tile += kRows;
      if (tile >= ranges.now.last) {
        if constexpr (kGrouped) range_end(ranges.number);
        if (ranges.advance()) tile = ranges.now.first;
      }
    }
    sums.for_each_own(tile, ranges.now.last, [&](int j, int r, int m) { before(j, tile + r, m, ranges.now.last); });
  }
}

// Ends the block's share of a range whose sums the blocks of the cluster have kept: some outputs of all rows, of each
// row of x by the same threads for their j-th pair as ever.
template <class Before, class Store>
NODEWRIGHT_DEVICE void finish_kept_sums(OutputRange range, int pairs, int rank, SumPair* parts /*[kTokens][pairs]*/,
                                        int live, Before before, Store store) {
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
      before(j, n, m, range.last);
      SumPair of_block[kSplits];
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int r = 0; r < kSplits; ++r) of_block[r] = load_from_block(r, parts + m * pairs + pair);
      float first = 0.0f, second = 0.0f;
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int r = 0; r < kSplits; ++r) first += of_block[r].first, second += of_block[r].second;
      store(j, n, m, first, second, range.last);
    }
  }
  cluster_arrive_relaxed();  // before a block's memory goes, or takes the sums of its next range
  cluster_wait();
}

// stream_meeting_tiles with sums that are kept until the last tile of a range has been multiplied. before and store are
// called then.
template <class Before, class Store, class RangeEnd>
NODEWRIGHT_DEVICE void stream_kept_tiles(TileRing<HeldRows>& ring, const HeldRows& held, float* of_warps,
                                         SumPair* parts /*[kTokens][pairs]*/, int live, Before before, Store store,
                                         RangeEnd range_end) {
  const int rank = cluster_rank();
  if constexpr (kGrouped) {
    BlockRanges ranges = ring.ranges;
    const auto pairs = [&] { return (ranges.now.last - ranges.now.first + 1) / 2; };
    stream_tiles(
        ring, held, of_warps, [](int, int, int, int) {},
        [&](int, int n, int m, float first, float second, int) {
          parts[m * pairs() + (n - ranges.now.first) / 2] = SumPair{first, second};
        },
        [&](int number) {
          finish_kept_sums(ranges.now, pairs(), rank, parts, live, before, store);
          range_end(number * static_cast<int>(kSplits) + rank);
          ranges.advance();
        });
  } else {
    const OutputRange range = ring.ranges.now;
    const int pairs = (range.last - range.first + 1) / 2;
    stream_tiles(
        ring, held, of_warps, [](int, int, int, int) {},
        [&](int, int n, int m, float first, float second, int) {
          parts[m * pairs + (n - range.first) / 2] = SumPair{first, second};
        },
        [](int) {});
    finish_kept_sums(range, pairs, rank, parts, live, before, store);
  }
}

// The whole of a kernel: requests weights, waits, holds `x` [rows, stride] or the block's group of its rows, streams
// weights, stores. `live`, of those rows, is set before the first call of prepare, before or store. request() is called
// once, while x is on its way, and prepare(shared) once, with kPrepared bytes that stay. before, store and range_end
// are stream_tiles'; with kSplits a block calls them for its share of the results.
template <int kPrepared, class Request, class Prepare, class Before, class Store, class RangeEnd>
NODEWRIGHT_DEVICE void tile_project_held(const WeightIn& w, const bf16* x, int64_t stride, int rows,
                                         const int32_t* n_live, BlockRanges ranges, int& live, Request request,
                                         Prepare prepare, Before before, Store store, RangeEnd range_end) {
  using Ring = TileRing<HeldRows>;
  const int column = (kSplits > 1 ? cluster_rank() : 0) * kColumns;
  unsigned char* const prepared = shared_memory() + Ring::kBytes;
  auto* const of_warps = reinterpret_cast<float*>(prepared + kPrepared);
  unsigned char* const of_cluster = reinterpret_cast<unsigned char*>(of_warps + 2 * kWarps * kWarpSums);
  Ring ring(w, ranges, shared_memory(), column);
  ring.start();
  const auto begin = [&] {
    release_dependents();
    wait_for_inputs();
    live = n_live[0];
  };
  if constexpr (kGrouped) {
    begin();
    live -= first_row_of_group(), rows -= first_row_of_group();
    x += first_row_of_group() * stride;
    if (live <= 0) {
      ring.leave();
      return;
    }
  }
  const auto hold = [&] {
    if constexpr (!kGrouped) begin();
    HeldRows held(x + column, stride, rows);
    request();
    held.arrange();
    prepare(prepared);
    return held;
  };
  if constexpr (kSplits == 1) {
    stream_tiles(ring, hold(), of_warps, before, store, range_end);
  } else if constexpr (kHeld != 2) {
    const HeldRows held = hold();
    stream_kept_tiles(ring, held, of_warps, reinterpret_cast<SumPair*>(of_cluster), live, before, store, range_end);
  } else {
    MeetingSums sums(of_cluster);
    stream_meeting_tiles(ring, hold(), of_warps, sums, before, store, range_end);
  }
}

// The sums of squares that come beside rows of a kernel before (kLeavesGained), in parts:
// from.squares, [parts, padded_rows()].
struct RowScales {
  static constexpr int kBytes = kWarps * kTokens * 4;
  static constexpr int kAllAtOnce = (kPartsOfSms + kWarps - 1) / kWarps;
  static constexpr int kPartsAtOnce = kAllAtOnce < 20 ? kAllAtOnce : 20;  // of a lane, on their way

  float parts[kPartsAtOnce];  // of row lane_of_warp() of the block's group
  float of_pair[kOwned];      // of the row of a thread's j-th pair

  NODEWRIGHT_DEVICE static int parts_of(const ResidualIn& from) {
    return static_cast<int>(from.squares.count) / padded_rows();
  }
  // The j-th of the warp's parts, every kWarps-th of `from`.
  NODEWRIGHT_DEVICE static float part_of(const ResidualIn& from, int j) {
    const int token = lane_of_warp(), left = parts_of(from) - warp_of_block();
    const float* const first = from.squares.data + (warp_of_block() * padded_rows() + first_row_of_group() + token);
    return j * kWarps < left && token < kTokens ? first[j * kWarps * padded_rows()] : 0.0f;
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
    const int count = parts_of(from);
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
