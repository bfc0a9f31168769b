// A weight matrix streamed past up to 32 rows of x, or past groups of 32, on tensor cores. Included by kernels that end
// in different epilogues; product/rows/matvec.cuh is the same for one row, with ordinary arithmetic.
//
// 8 rows of W are the right operand of mma.m16n8k16, 16 rows of x the left one, half of it zero where there are 8. The
// sum over columns may go in any order that both operands agree on: lane (g, t) holds eight columns of each of two
// steps of a span of 64, of W's rows g and g + 8 and of x's row g, as 16-byte words whose pairs of registers are
// operands as they come, or once the words of W have been converted (product/format). A tile is 8 or 16 rows of W. It
// comes to shared memory in pieces of its columns, of all of them where its rows are short enough, and is then one
// contiguous copy; a ring of such stages is on its way. Warps take the spans of 64 columns in turn; their sums meet in
// shared memory, in the order of the warps. So a row's bits depend on W's shape and on the sizes below only. Block b
// owns a contiguous range of outputs, so bytes are balanced over SMs to within one row. With kSplits the columns are
// dealt, too, to the blocks of a cluster (product/tiles/tile_held_rows.cuh).
//
// With kRanges x has more than kTokens rows. Blocks (b, g) have group g of them, and all groups read W at once. Outputs
// are dealt in as many ranges as one group alone would have blocks or clusters, and a block takes several ranges, so
// that what it leaves for each of them is that of any number of rows.
//
// Constants: kTokenTiles (of 8 rows of x), kCols, kStride (W's row stride, elements), kThreads, kSpans (of a warp),
// kPieceSpans (of them, in a stage), kTileRows, kRing (stages), kHeld, kSplits, kRanges
// (kernels_src/product/tiles/tile_shape.h); kBias 1 if outputs have one; those of product/format/weights.cuh.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/device/cluster.cuh"
#include "kernels_src/device/output_range.cuh"
#include "kernels_src/device/stage_copies.cuh"
#include "kernels_src/product/format/weights.cuh"
#include "kernels_src/product/tiles/span_product.cuh"

namespace nodewright {

constexpr int kWarps = static_cast<int>(kThreads / 32);
constexpr int kTiles = static_cast<int>(kTokenTiles);
constexpr int kTokens = 8 * kTiles;
constexpr bool kGrouped = kRanges > 0;  // a block has one of several groups of kTokens rows of x
constexpr int kPairs = (kTiles + 1) / 2;
constexpr int kRows = static_cast<int>(kTileRows);  // of W, in a tile
constexpr int kStages = static_cast<int>(kRing);
constexpr int kColumns = static_cast<int>(kStride / kSplits);  // of a row, of this block
constexpr bool kExact = kSpans * kWarps * 64 == kColumns;      // no warp lacks columns
constexpr int kPieceColumns = static_cast<int>(kPieceSpans) * kWarps * 64;
constexpr int kPieces = static_cast<int>((kSpans + kPieceSpans - 1) / kPieceSpans);
// Floats between the sums of two rows of x: half a warp's lanes write pairs of theirs to 32 banks.
constexpr int kSumStride = kRows == 16 ? 24 : 8;
constexpr int kWarpSums = kTokens * kSumStride;
constexpr int kWordStride = 32 * 8;  // elements between two words of a lane
constexpr int kHalfTile = kRows / 2, kPairsOfTile = kHalfTile * kTokens;
// Pairs of outputs, two rows of W and a row of x, that a thread stores of a tile.
constexpr int kOwned = static_cast<int>((kPairsOfTile + kThreads - 1) / kThreads);
constexpr int kOwnedAlone = static_cast<int>((2 * kPairsOfTile + kThreads - 1) / kThreads);  // single outputs
// Spans of a stage that are unrolled: two tiles of tokens leave no registers for more, unless they are in registers.
constexpr int kSpansAtOnce = static_cast<int>(kTokenTiles == 1 || kHeld != 0 ? kPieceSpans : 1);
static_assert(kRows == 8 || kRows == 16);
static_assert(!kNibbles || kPieces == 1 || kPieceColumns % 128 == 0, "a piece begins where four lanes' words do");
static_assert(!kHasGroups || kColumns % (kNibbles ? 128 : 64) == 0);
// Operands are in fp16; W is the left one.
constexpr bool kInHalves = kHeld != 0 && kFormat != 0 && kHasHalves, kTurned = kInHalves && kTiles == 1 && kRows == 16;
// Parts of a row's squares that are requested in one round trip: at most one of each SM of the cards of today.
constexpr int kPartsOfSms = 136;

// The first row of the block's group, and the rows of all groups.
NODEWRIGHT_DEVICE int first_row_of_group() { return kGrouped ? static_cast<int>(blockIdx.y) * kTokens : 0; }
NODEWRIGHT_DEVICE int padded_rows() { return kGrouped ? static_cast<int>(gridDim.y) * kTokens : kTokens; }

// The outputs of a block and of the other blocks of its cluster: one range, or with kRanges several, one after the
// other.
struct BlockRanges {
  OutputRange now;
  int number = 0, last = 0, units = 0, unit = 0;  // with kRanges: the number of `now`, and where the block's end

  // Outputs are dealt in units of `unit_of`.
  NODEWRIGHT_DEVICE BlockRanges(int64_t outputs, int unit_of) {
    if constexpr (kGrouped) {
      const int blocks = static_cast<int>(gridDim.x / kSplits), b = static_cast<int>(blockIdx.x / kSplits);
      units = static_cast<int>(outputs) / unit_of, unit = unit_of;
      number = static_cast<int>(kRanges) * b / blocks, last = static_cast<int>(kRanges) * (b + 1) / blocks;
      now = range_of(number);
    } else {
      now = block_outputs<kSplits>(outputs, unit_of);
    }
  }
  NODEWRIGHT_DEVICE OutputRange range_of(int i) const {
    constexpr int kAll = kGrouped ? static_cast<int>(kRanges) : 1;
    return {units * i / kAll * unit, units * (i + 1) / kAll * unit};
  }
  // Whether there was another one.
  NODEWRIGHT_DEVICE bool advance() {
    if (!kGrouped || number + 1 == last) return false;
    now = range_of(++number);
    return true;
  }
};

// Parts of a row's outputs, each ended by one block: ranges, or what a block of a cluster ends of one.
NODEWRIGHT_DEVICE int parts_of_row() {
  if constexpr (kGrouped) return static_cast<int>(kRanges * (kHeld == 2 ? 1 : kSplits));
  return static_cast<int>(kHeld == 2 ? gridDim.x / kSplits : gridDim.x);
}
// Calls range_end(part) of the block's only range.
template <class RangeEnd>
NODEWRIGHT_DEVICE void end_only_range(RangeEnd range_end) {
  if constexpr (!kGrouped) range_end(static_cast<int>(kHeld == 2 ? blockIdx.x / kSplits : blockIdx.x));
}

// Where the warp's span begins in a block's columns of a row, and how far from a step's first column this lane's are.
NODEWRIGHT_DEVICE int span_column(int span) { return (span * kWarps + warp_of_block()) * 64; }
NODEWRIGHT_DEVICE int lane_column() { return lane_of_warp() % 4 * Weights::kLaneColumns; }

// Groups of int4 weights that a span is multiplied in: of 64 columns at most.
constexpr int kGroupsOfSpan = kInt4 && kScaleColumns < 64 ? 2 : 1;

// The stages on their way: of each, a piece of a tile's rows, then what Rows::kStageBytes holds of x, then the words of
// all groups of the tile's rows.
template <class Rows>
struct TileRing {
  // Between two rows. 8 lanes read 64 bytes of each of two rows at once: of other banks, unless a copy is contiguous.
  static constexpr bool kWhole = kPieces == 1 && kSplits == 1;
  static constexpr int kPieceBytes = bytes_of_columns(kPieceColumns);  // of a row
  static constexpr int kRowBytes = kWhole ? bytes_of_columns(kStride) : kPieceBytes + (kPieceBytes % 128 == 0 ? 64 : 0);
  static constexpr int kGroupBytes = kRows * kGroupStride<kStride> * 4;
  static constexpr int kStageBytes = (kRows * kRowBytes + Rows::kStageBytes + kGroupBytes + 127) / 128 * 128;
  using Copies =
      StageCopies<static_cast<int>(kThreads), kStages, (Rows::kStageBytes > 0 ? 2 : 1) + (kHasGroups ? 1 : 0),
                  static_cast<int>((kStageBytes / 16 + 2 * kThreads - 1) / kThreads + Rows::kGainWords)>;
  static constexpr int kBytes = kStages * kStageBytes + Copies::kBytes;

  const Stored* weight;  // from the block's first column on
  const float* scales;   // of blocks of columns
  BlockRanges ranges;
  int total;         // stages of this block
  BlockRanges next;  // with kRanges: of what is requested next, its first output that of a tile
  unsigned char* stages;
  Copies copies;

  NODEWRIGHT_DEVICE TileRing(const WeightIn& w, BlockRanges outputs, unsigned char* shared, int column = 0)
      : weight(stored(w) + column / Weights::kColumnsOfElement),
        scales(scales_of<kStride>(w)),
        ranges(outputs),
        total((outputs.now.last - outputs.now.first + kRows - 1) / kRows * kPieces),
        next(outputs),
        stages(shared + Copies::kBytes),
        copies(shared) {
    if constexpr (kGrouped)
      while (outputs.advance()) total += (outputs.now.last - outputs.now.first + kRows - 1) / kRows * kPieces;
  }

  NODEWRIGHT_DEVICE unsigned char* stage(int slot) const { return stages + slot * kStageBytes; }
  NODEWRIGHT_DEVICE unsigned char* stage_rows(int slot) const { return stage(slot) + kRows * kRowBytes; }
  NODEWRIGHT_DEVICE uint32_t* stage_groups(int slot) const {
    return reinterpret_cast<uint32_t*>(stage_rows(slot) + Rows::kStageBytes);
  }

  // The first column of the block's i-th stage.
  NODEWRIGHT_DEVICE static int first_column(int i) { return i % kPieces * kPieceColumns; }
  // Called in order, from i = 0.
  NODEWRIGHT_DEVICE void request_weights(int i, int slot) {
    const OutputRange range = kGrouped ? next.now : ranges.now;
    const int tile = kGrouped ? range.first : range.first + i / kPieces * kRows,
              rows = range.last - tile < kRows ? range.last - tile : kRows;
    if constexpr (kGrouped) {
      next.now.first += kRows;
      if (next.now.first >= range.last) next.advance();
    }
    if constexpr (kHasGroups) {
      auto* const groups = reinterpret_cast<unsigned char*>(stage_groups(slot));
      copies.template request<CopyForm::whole>(
          slot, {groups, scales + tile * kGroupStride<kStride>, 1, rows * kGroupStride<kStride> * 4, 0, 0});
    }
    const Stored* const from = weight + (tile * kStride + first_column(i)) / Weights::kColumnsOfElement;
    if constexpr (kWhole) {
      copies.template request<CopyForm::whole>(slot, {stage(slot), from, 1, rows * kRowBytes, 0, 0});
    } else {
      const int left = kColumns - first_column(i);
      copies.template request<kSplits == 1 ? CopyForm::rows : CopyForm::short_rows>(
          slot, {stage(slot), from, rows, bytes_of_columns(left < kPieceColumns ? left : kPieceColumns), kRowBytes,
                 bytes_of_columns(kStride)});
    }
  }
  NODEWRIGHT_DEVICE void start() {
    for (int i = 0; i < kStages; ++i) {
      if (i < total) request_weights(i, i);
      copies.close();
    }
    if constexpr (kScaledBlocks) prefetch_scales();
  }
  // After start(), where nothing is multiplied: the block's memory may go when all that was requested is there.
  NODEWRIGHT_DEVICE void leave() {
    for (int i = 0; i < kStages && i < total; ++i) {
      copies.wait(i);
      copies.close();
    }
  }
  // The scales of the first groups of rows of the block's first range, and of its last: there when its first weights
  // are.
  NODEWRIGHT_DEVICE void prefetch_scales() const {
    constexpr int kFloats = kUnitOfScales * static_cast<int>(WeightLayout::scale_stride(kStride));
    for (int i = static_cast<int>(threadIdx.x) * 32; i < 2 * kFloats; i += static_cast<int>(kThreads) * 32) {
      const int row = i < kFloats ? ranges.now.first : ranges.now.last - 1;
      prefetch_line(scales + first_scale<kStride>(row / kUnitOfScales * kUnitOfScales) + i % kFloats);
    }
  }
};

// The scales of blocks of columns of the rows of W whose sums this lane has: 2t and 2t + 1 of a tile, and 8 further on;
// of turned ones g and g + 8.
struct TileScales {
  static constexpr int kOfHalf = kTurned ? 1 : 2;

  const float* of_matrix;
  int of[2][kOfHalf];  // where they begin

  NODEWRIGHT_DEVICE TileScales(const float* scales, int tile, int last) : of_matrix(scales) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < 2 * kOfHalf; ++i) {
      const int lane = lane_of_warp(), first = kTurned ? lane / 4 : lane % 4 * 2 + i % 2;
      const int row = tile + first + (kRows == 16 ? i / kOfHalf * 8 : 0);
      of[i / kOfHalf][i % kOfHalf] = first_scale<kStride>(row < last ? row : last - 1);
    }
  }
  // sums += those of a span that begins at `column` of W.
  NODEWRIGHT_DEVICE void add(PairSums (&sums)[kPairs], const PairSums (&of_span)[kPairs], int column) const {
    const int block = column / static_cast<int>(WeightLayout::kScaleBlock);
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int k = 0; k < 2; ++k) {
      if constexpr (kTurned) {
        const float scale = of_matrix[of[k][0] + block];
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int i = 2 * k; i < 2 * k + 2; ++i) sums[0].upper[i] = fmaf(of_span[0].upper[i], scale, sums[0].upper[i]);
      } else {
        const float upper = of_matrix[of[0][k] + block], lower = kRows == 16 ? of_matrix[of[1][k] + block] : upper;
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int n = 0; n < kTiles; ++n) {
          const int i = n % 2 * 2 + k;
          sums[n / 2].upper[i] = fmaf(of_span[n / 2].upper[i], upper, sums[n / 2].upper[i]);
          sums[n / 2].lower[i] = fmaf(of_span[n / 2].lower[i], lower, sums[n / 2].lower[i]);
        }
      }
    }
  }
};

// The warp's i-th span of a stage, the `span`-th of its row. `weights`, `rows`: in the ring.
template <class Rows>
NODEWRIGHT_DEVICE void multiply_staged(PairSums (&sums)[kPairs], const Rows& x, const unsigned char* weights,
                                       const unsigned char* rows, int i, int span) {
  const auto load = [&](int column, int row) {
    if (!kExact && span_column(span) + column + lane_column() >= kColumns) return uint4{0u, 0u, 0u, 0u};
    return load_16(weights + row * TileRing<Rows>::kRowBytes +
                   bytes_of_columns(span_column(i) + column + lane_column()));
  };
  const auto fragment = [&](int s, int n) { return x.fragment(rows, i, span, s, n); };
  if constexpr (kTurned)
    multiply_turned_span<true>(sums[0], HalvesSpan<kRows, decltype(load)>(load), fragment);
  else if constexpr (kInHalves)
    multiply_span<kRows, kTiles, true>(sums, HalvesSpan<kRows, decltype(load)>(load), fragment);
  else
    multiply_span<kRows, kTiles, false>(sums, typename Weights::template Span<kRows, decltype(load)>(load), fragment);
}

// sums += those of a group, times its scale. `groups`: the group's word of the tile's first row; ones(i): of_group's
// sums if all codes were 1, which i numbers as HeldRows does.
template <class Ones>
NODEWRIGHT_DEVICE void add_group(PairSums (&sums)[kPairs], const PairSums (&of_group)[kPairs], const uint32_t* groups,
                                 const Ones& ones) {
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
  const auto add = [](float& sum, float of_codes, uint32_t word, float of_ones) {
    if constexpr (kInHalves) of_codes = fmaf(-zero_of_group(word), of_ones, of_codes);  // else codes minus zeros
    sum = fmaf(of_codes, scale_of_group(word), sum);
  };
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int half = 0; half < 2; ++half) {  // of a tile of 16 rows
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int o = 0; o < 2; ++o) {
      const uint32_t word = groups[((kTurned ? g : 2 * t + o) + (kRows == 16 ? 8 * half : 0)) * kGroupStride<kStride>];
      if constexpr (kTurned) {
        add(sums[0].upper[2 * half + o], of_group[0].upper[2 * half + o], word, ones(o));
      } else {
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int n = 0; n < kTiles; ++n) {
          const int i = n % 2 * 2 + o;
          if (half == 0)
            add(sums[n / 2].upper[i], of_group[n / 2].upper[i], word, ones(n));
          else  // of 8 rows the second half of the same sums
            add(sums[n / 2].lower[i], of_group[n / 2].lower[i], word, kRows == 16 ? ones(n) : 0.0f);
        }
      }
    }
  }
}

// multiply_staged of int4 weights.
template <class Rows>
NODEWRIGHT_DEVICE void multiply_int4(PairSums (&sums)[kPairs], const Rows& x, const unsigned char* weights,
                                     const unsigned char* rows, const uint32_t* groups, int i, int span) {
  // Spans of a warp are kApart columns apart: mostly whole words of four lanes, and whole groups.
  constexpr int kApart = kWarps * 64;
  const int first = span_column(0), of_groups = first + (kSplits > 1 ? cluster_rank() * kColumns : 0);
  const int at =
      kApart % 128 == 0 ? NibbleCodes::span_byte(first) + i * (kApart / 2) : NibbleCodes::span_byte(first + i * kApart);
  const auto load = [&](int row) {
    return *reinterpret_cast<const uint2*>(weights + row * TileRing<Rows>::kRowBytes + at);
  };
  const auto fragment = [&](int s, int n) { return x.fragment(rows, i, span, s, n); };
  const Int4Words<kRows> words(load);
  const auto each_group = [&]<int kGroup>() {
    constexpr int kFirst = kGroup, kLast = kGroupsOfSpan == 2 ? kGroup + 1 : 2;  // steps of 32 columns
    constexpr int kShared = static_cast<int>(kScaleColumns);
    const int number = kApart % kShared == 0 ? (of_groups + kGroup * 32) / kShared + span * (kApart / kShared)
                                             : (of_groups + span * kApart + kGroup * 32) / kShared;
    const uint32_t* const of_group = groups + number;
    PairSums of_codes[kPairs] = {};
    if constexpr (kTurned) {
      multiply_turned_span<true, kFirst, kLast>(of_codes[0], words.halves(), fragment);
    } else if constexpr (kInHalves) {
      multiply_span<kRows, kTiles, true, kFirst, kLast>(of_codes, words.halves(), fragment);
    } else {
      const auto zero = [&](int row) { return zero_of_group(of_group[row * kGroupStride<kStride>]); };
      multiply_span<kRows, kTiles, false, kFirst, kLast>(of_codes, words.less_zeros(zero), fragment);
    }
    add_group(sums, of_codes, of_group, [&](int n) {
      if constexpr (kInHalves) return x.sum_of_ones(span, kGroup, n);
      return 0.0f;
    });
  };
  each_group.template operator()<0>();
  if constexpr (kGroupsOfSpan == 2) each_group.template operator()<1>();
}

// multiply_staged of codes that become numbers before they are multiplied.
template <class Format, class Rows>
NODEWRIGHT_DEVICE void multiply_grouped(PairSums (&sums)[kPairs], const Rows& x, const unsigned char* weights,
                                        const unsigned char* rows, const uint32_t* groups, int i, int span) {
  // Spans of a warp are kApart columns apart: whole groups, and mostly whole words of four lanes.
  constexpr int kApart = kWarps * 64, kGroupsApart = kApart / Format::kColumnsOfGroup;
  const int first = span_column(0), column = first + (kSplits > 1 ? cluster_rank() * kColumns : 0) + lane_column();
  const int at = kApart % Format::kColumnsOfWords == 0 ? Format::span_byte(first) + i * bytes_of_columns(kApart)
                                                       : Format::span_byte(first + i * kApart);
  const auto* const of_column = reinterpret_cast<const unsigned char*>(groups) +
                                (column / Format::kColumnsOfGroup + span * kGroupsApart) * Format::kBytesOfGroup;
  const GroupedSpan<Format, kRows, kInHalves> words(
      [&](int row) {
        return *reinterpret_cast<const typename Format::SpanWord*>(weights + row * TileRing<Rows>::kRowBytes + at);
      },
      [&](int row) { return of_column + row * kGroupStride<kStride> * 4; });
  const auto fragment = [&](int s, int n) { return x.fragment(rows, i, span, s, n); };
  if constexpr (kTurned)
    multiply_turned_span<kInHalves>(sums[0], words, fragment);
  else
    multiply_span<kRows, kTiles, kInHalves>(sums, words, fragment);
}

// Two sums, of neighbouring outputs with one row of x.
struct alignas(8) SumPair {
  float first, second;
};

// f(j, r, m): the thread's j-th outputs of the tile at output `tile` are kWide from its row r on, of row m of x. At
// most kOwned pairs, or kOwnedAlone single outputs; none from `last` on.
template <int kWide, class F>
NODEWRIGHT_DEVICE void for_each_owned(int tile, int last, F f) {
  constexpr int kOfRow = kRows / kWide;
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int j = 0; j < (kWide == 2 ? kOwned : kOwnedAlone); ++j) {
    const int own = static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads), r = own % kOfRow * kWide;
    if (own < kOfRow * kTokens && tile + r < last) f(j, r, own / kOfRow);
  }
}

// Row r and, with kWide 2, r + 1 of a tile with row m of x: the sums of all warps.
template <int kWide>
NODEWRIGHT_DEVICE SumPair sum_of_warps(const float* partial /*[kWarps][kTokens][kSumStride]*/, int r, int m) {
  const float* from = partial + m * kSumStride + r;
  SumPair sum{0.0f, 0.0f};
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int w = 0; w < kWarps; ++w) {
    sum.first += from[w * kWarpSums];
    if constexpr (kWide == 2) sum.second += from[w * kWarpSums + 1];
  }
  return sum;
}

// sums += the `piece`-th stage of the tile at output `tile` of a range that ends at `last`, which lies in `slot`.
template <class Rows>
NODEWRIGHT_DEVICE void multiply_stage(PairSums (&sums)[kPairs], TileRing<Rows>& ring, const Rows& x, int slot, int tile,
                                      int last, int piece) {
  const int first = piece * static_cast<int>(kPieceSpans);  // span of the stage
  const auto each_span = [&](const auto& f) {               // f(k, span)
    NODEWRIGHT_UNROLL_BY(kHeld != 0 || kSpansAtOnce < 2 ? kSpansAtOnce : 2)
    for (int k = 0; k < kPieceSpans; ++k) {
      const int span = first + k;
      if (span >= kSpans || (!kExact && span_column(span) >= kColumns)) continue;  // of a whole warp
      f(k, span);
    }
  };
  if constexpr (kInt4) {
    each_span([&](int k, int span) {
      multiply_int4(sums, x, ring.stage(slot), ring.stage_rows(slot), ring.stage_groups(slot), k, span);
    });
  } else if constexpr (kHasGroups) {
    each_span([&](int k, int span) {
      multiply_grouped<Weights>(sums, x, ring.stage(slot), ring.stage_rows(slot), ring.stage_groups(slot), k, span);
    });
  } else if constexpr (kScaledBlocks) {
    const TileScales scales(ring.scales, tile, last);
    const int column = kSplits > 1 ? cluster_rank() * kColumns : 0;
    each_span([&](int k, int span) {
      PairSums of_span[kPairs] = {};
      multiply_staged(of_span, x, ring.stage(slot), ring.stage_rows(slot), k, span);
      scales.add(sums, of_span, column + span_column(span));
    });
  } else {
    NODEWRIGHT_UNROLL_BY(kSpansAtOnce)
    for (int k = 0; k < kPieceSpans; ++k)
      if (kSpans % kPieceSpans == 0 || piece * kPieceSpans + k < kSpans)
        multiply_staged(sums, x, ring.stage(slot), ring.stage_rows(slot), k, piece * static_cast<int>(kPieceSpans) + k);
  }
}
// Leaves the sums that lane (g, t) of the warp has of a tile where sum_of_warps() reads them.
template <class Rows>
NODEWRIGHT_DEVICE void leave_sums(const PairSums (&sums)[kPairs], [[maybe_unused]] const Rows& x, int g, int t,
                                  float* partial /*[kWarps][kTokens][kSumStride]*/) {
  float* const of_warp = partial + warp_of_block() * kWarpSums;
  if constexpr (kTurned) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < 4; ++i)
      of_warp[(2 * t + i % 2) * kSumStride + g + i / 2 * 8] =
          kInHalves ? sums[0].upper[i] * x.factors[i % 2] : sums[0].upper[i];
  } else {
    float* mine = of_warp + g * kSumStride + 2 * t;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < kTiles; ++n) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int k = 0; k < 2; ++k) {
        float upper = sums[n / 2].upper[n % 2 * 2 + k], lower = sums[n / 2].lower[n % 2 * 2 + k];
        if constexpr (kInHalves) upper *= x.factors[n], lower *= x.factors[n];
        mine[n * 8 * kSumStride + k] = kRows == 16 ? upper : upper + lower;
        if constexpr (kRows == 16) mine[n * 8 * kSumStride + 8 + k] = lower;
      }
    }
  }
}

// Runs this block's outputs through a ring that has been started, where the block has all columns. A thread stores
// kOwned pairs of outputs of a tile at most: before(j, row, m, last) is called early for its j-th, and
// store(j, row, m, first, second, last) with the dot products of rows `row` and `row` + 1 of W with row m of x; row + 1
// may be past the last. With kWide 1 it stores kOwnedAlone single outputs, neighbours in neighbouring lanes, and
// `second` is 0. No outputs of the range are from `last` on. With kRanges all threads call range_end(part) after each
// range.
template <int kWide = 2, class Rows, class Before, class Store, class RangeEnd>
NODEWRIGHT_DEVICE void stream_tiles(TileRing<Rows>& ring, const Rows& x,
                                    float* partial /*[2][kWarps][kTokens][kSumStride]*/, Before before, Store store,
                                    RangeEnd range_end) {
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
  BlockRanges ranges = ring.ranges;
  float* now = partial;
  float* other = partial + kWarps * kWarpSums;
  if constexpr (Rows::kStageBytes > 0) {
    for (int i = 0; i < kStages; ++i) {
      if (i < ring.total) x.request(ring, i, i);
      ring.copies.close();
    }
  }
  int slot = 0, i = 0;
  do {
    const OutputRange range = ranges.now;
    for (int tile = range.first; tile < range.last; tile += kRows) {
      for_each_owned<kWide>(tile, range.last, [&](int j, int r, int m) { before(j, tile + r, m, range.last); });
      PairSums sums[kPairs] = {};
      for (int piece = 0; piece < kPieces; ++piece, ++i) {
        ring.copies.wait(slot);
        multiply_stage(sums, ring, x, slot, tile, range.last, piece);
        if (piece == kPieces - 1) leave_sums(sums, x, g, t, now);
        __syncthreads();  // the stage has been read, and a tile's sums are there
        if (i + kStages < ring.total) {
          ring.request_weights(i + kStages, slot);
          if constexpr (Rows::kStageBytes > 0) x.request(ring, i + kStages, slot);
        }
        ring.copies.close();
        slot = slot + 1 == kStages ? 0 : slot + 1;
      }
      for_each_owned<kWide>(tile, range.last, [&](int j, int r, int m) {
        const SumPair sum = sum_of_warps<kWide>(now, r, m);
        store(j, tile + r, m, sum.first, sum.second, range.last);
      });
      float* const swapped = now;
      now = other, other = swapped;  // written again when every thread has passed the next barrier
    }
    if constexpr (kGrouped) range_end(ranges.number);
  } while (ranges.advance());
}

// f(j, i): the thread's j-th outputs are those of the i-th pair of a tile, of one row of x in every tile. Whole warps.
template <class F>
NODEWRIGHT_DEVICE void for_each_owned_pair(F f) {
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int j = 0; j < kOwned; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads);
    if (i >= kPairsOfTile) break;
    f(j, i);
  }
}
// Pairs of a tile that a block ends. Where sums meet tile by tile, each block of a cluster has some rows of x.
constexpr int kShareOfBlock = kHeld == 2 ? kPairsOfTile / static_cast<int>(kSplits) : kPairsOfTile;
NODEWRIGHT_DEVICE bool is_of_block(int pair) {
  if constexpr (kHeld == 2) return pair / kShareOfBlock == cluster_rank();
  return true;
}

// The scales and biases of the pairs that a thread stores of a tile, where there are such. Requested in stream_tiles'
// before, while the tile's weights are on their way; the sums get them in its store.
struct PairTerms {
  float scales[kScaledRows ? kOwned : 1][2], biases[kBias != 0 ? kOwned : 1][2];

  NODEWRIGHT_DEVICE void request(const WeightIn& w, int j, int n) {
    if constexpr (kScaledRows) {
      scales[j][0] = scale_of<kStride>(w, n);
      scales[j][1] = n + 1 < w.outputs ? scale_of<kStride>(w, n + 1) : 0.0f;
    }
    if constexpr (kBias != 0) {
      biases[j][0] = to_float(w.bias.data[n]);
      biases[j][1] = n + 1 < w.outputs ? to_float(w.bias.data[n + 1]) : 0.0f;
    }
  }
  NODEWRIGHT_DEVICE void end(int j, float& first, float& second) const {
    if constexpr (kScaledRows) first *= scales[j][0], second *= scales[j][1];
    if constexpr (kBias != 0) first += biases[j][0], second += biases[j][1];
  }
};

}  // namespace nodewright
