// How a matrix times rows is laid over the tensor cores: warps share the columns, blocks own contiguous ranges
// of outputs. Host only; the kernels of product/tiles/tile_stream.cuh are compiled for its constants.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels_src/launch_shape.h"
#include "kernels_src/product/format/weight_layout.h"

namespace nodewright {

// What a measurement has found better; 0: what TileShape says itself.
struct TileTuning {
  int64_t warps = 0;   // of a block, 1 to 16
  int64_t rows = 0;    // of W, in a tile: 8 or 16
  int64_t piece = 0;   // spans of a warp in a stage
  int64_t ring = 0;    // stages in flight, 1 to 8, where a block's shared memory holds them
  int64_t splits = 0;  // where rows of x are held: blocks that share the columns, 1, 2, 4 or 8
  bool operator==(const TileTuning&) const = default;
};

// y[rows, outputs] = x[rows, cols] . W[outputs, cols]^T, W with `stride` elements a row (a multiple of 8, of FP8 16).
struct TileShape {
  static constexpr int64_t kMostSplits = 8;  // blocks of a cluster
  static constexpr int64_t kMostHeldRows = 32;

  int64_t rows = 1;          // rows of the bucket
  int64_t cols = 0;          // elements of x that count
  int64_t stride = 0;        // elements between two rows of W: cols rounded up to 8
  int64_t outputs = 0;       // rows of W
  int64_t unit = 1;          // W rows that must stay in one block (2: a gate row and its up row)
  bool normed = false;       // x is normed first: all of it stays in shared memory
  bool post_normed = false;  // before that, what joins x is: its gain is there, too
  bool gained = false;       // normed, but for the scales, by the kernel before; cols = stride then
  bool held = false;         // x stays in registers: see holds(); of more than 32 rows each group of 32
  bool shifted = false;      // the norm is a LayerNorm: its shift is there, too
  TileTuning tuning = {};
  bool keeps_sums = false;  // a block's sums stay in its shared memory (product/tiles/tile_kept_sums.cuh)
  int64_t clusters = 0;     // of splits() blocks that run at once, at most; 0: as many as the SMs have room for

  bool meets = false;  // the sums of a cluster's blocks meet tile by tile (product/tiles/tile_held_rows.cuh)
  bool ends_in_registers = false;  // a bias or an adapter takes some
  WeightLayout weights = {};

  // Spans of 64 columns of up to 32 rows of x that a warp of a block with all columns holds: four in 128 registers a
  // lane; six in 192, where no bias, adapter or scale of a block needs some of the others, and where a block has
  // several tiles, since it reads all of x (docs/products.md). Eight of up to 8 rows beside FP8, unless the sums of any
  // number of rows have one order.
  constexpr int64_t most_spans() const {
    if (ends_in_registers || outputs <= 2048) return 4;
    if (weights.is_quantized() && !meets && token_tiles() == 1) return 8;
    return (weights.in_blocks || weights.is_grouped()) && (meets || token_tiles() > 2) ? 4 : 6;
  }
  // The same of a block that shares them.
  constexpr int64_t shared_spans() const {
    return weights.is_int4() && token_tiles() <= 2 && !ends_in_registers ? 5 : 4;
  }
  // Blocks of a cluster that share the columns: the fewest that can hold them, 0 where none can.
  constexpr int64_t splits() const {
    if (!held) return 1;
    for (int64_t n = tuning.splits > 0 ? tuning.splits : 1; n <= kMostSplits; n *= 2) {
      const int64_t whole = weights.has_nibbles()                                  ? 128
                            : n > 1 && (weights.in_blocks || weights.is_grouped()) ? 64
                                                                                   : weights.word_columns();
      // Columns that stay together.
      if (stride % (whole * n) == 0 && (stride / n + 63) / 64 <= 8 * (n > 1 ? shared_spans() : most_spans())) return n;
    }
    return 0;
  }
  // Columns of one block.
  constexpr int64_t columns() const { return stride / splits(); }
  constexpr bool holds() const { return held && cols == stride && splits() > 0; }

  // Groups of as many rows as registers hold. Each has blocks of its own, which go through all of W.
  constexpr int64_t groups() const { return held ? (rows + kMostHeldRows - 1) / kMostHeldRows : 1; }
  // Halves of an mma instruction's left operand: buckets of up to 8 share a kernel.
  constexpr int64_t token_tiles() const { return ((groups() > 1 ? kMostHeldRows : rows) + 7) / 8; }
  // The rows of all groups, which the squares beside gained rows are padded to.
  static constexpr int64_t padded_rows(int64_t rows) {
    const int64_t multiple = rows > kMostHeldRows ? kMostHeldRows : 8;
    return (rows + multiple - 1) / multiple * multiple;
  }

  // Fewest spans of 64 columns lacking, then the most warps: up to 8, or 16 of up to 5 spans of int4, of whose blocks
  // two would otherwise share an SM while others idle.
  constexpr int64_t warps() const {
    if (tuning.warps > 0) return tuning.warps;
    const int64_t all = (columns() + 63) / 64;
    if (held) {  // as few registers as eight warps leave
      const bool many = weights.is_int4() && token_tiles() == 1 && !ends_in_registers && all <= 5 * 8;
      const int64_t most = many ? 16 : 8, each = (all + most - 1) / most;
      return (all + each - 1) / each;
    }
    int64_t best = 1, least = INT64_MAX;
    for (int64_t w = std::min<int64_t>(4, all); w <= std::min<int64_t>(8, all); ++w) {
      const int64_t lacking = (all + w - 1) / w * w - all;
      if (lacking <= least) best = w, least = lacking;
    }
    return best;
  }
  constexpr int64_t threads() const { return 32 * warps(); }
  // Spans of a warp; each is 64 columns of a row.
  constexpr int64_t spans() const { return (columns() + 64 * warps() - 1) / (64 * warps()); }

  // Rows of W in a tile. Rows of x that are not normalized are copied again for every tile; of held rows 16 are at most
  // 64 KiB. Rows in FP8 are so short that 16 are as many bytes as 8 in bf16.
  constexpr int64_t tile_rows() const {
    if (tuning.rows > 0) return tuning.rows;
    return held ? (weights.row_bytes(columns()) > 4096 ? 8 : 16) : normed && !weights.is_quantized() ? 8 : 16;
  }

  // Spans of a warp that come as one stage. Of rows that are normed all, where a tile of them is at most 64 KiB: one
  // copy then. Rows of x that come beside are not there before the wait: two stages at least, of at most 96 KiB.
  constexpr int64_t piece_spans() const {
    if (held) return spans();
    if (tuning.piece > 0) return whole_groups(tuning.piece);
    const int64_t most = std::max<int64_t>(1, (normed ? 64 << 10 : 96 << 10) / span_bytes());
    const int64_t pieces = std::max<int64_t>(normed ? 1 : 2, (spans() + most - 1) / most);
    return whole_groups((spans() + pieces - 1) / pieces);
  }
  // A piece begins where four lanes' words do: two spans hold those of 4 bits.
  constexpr int64_t whole_groups(int64_t piece) const {
    const int64_t step = weights.has_nibbles() && warps() % 2 != 0 ? 2 : 1;
    return std::min((piece + step - 1) / step * step, spans());
  }

  // Ranges that outputs are dealt in: of a block, or of a cluster. All of them run at once.
  constexpr int64_t ranges(int64_t sm_count) const {
    const int64_t most = clusters > 0 ? clusters : sm_count / splits();
    return std::min(outputs / unit, std::max<int64_t>(1, most));
  }
  constexpr int64_t most_outputs(int64_t sm_count) const {
    return (outputs / unit + ranges(sm_count) - 1) / ranges(sm_count) * unit;
  }
  // Blocks or clusters of a group of rows, which take as many of the ranges each as leaves all groups at once.
  constexpr int64_t range_blocks(int64_t sm_count) const { return std::max<int64_t>(1, ranges(sm_count) / groups()); }
  // Stages of the block with the most rows.
  constexpr int64_t stages(int64_t sm_count) const {
    const int64_t most = most_outputs(sm_count), blocks = range_blocks(sm_count);
    const int64_t pieces = (spans() + piece_spans() - 1) / piece_spans();
    return (most + tile_rows() - 1) / tile_rows() * pieces * ((ranges(sm_count) + blocks - 1) / blocks);
  }
  // Stages on their way to shared memory, where that is large enough (docs/products.md). Of held rows at most 160 KiB:
  // what comes before the wait is ahead of x.
  constexpr int64_t most_ring(int64_t sm_count) const {
    const int64_t of_held = std::clamp<int64_t>((160 << 10) / (tile_rows() * weights.row_bytes(columns())), 2, 4);
    return std::min(stages(sm_count), tuning.ring > 0 ? tuning.ring : held ? of_held : 3);
  }

  constexpr int64_t shared_bytes(int64_t sm_count, int64_t ring) const {
    const bool whole = piece_spans() == spans() && splits() == 1;
    // Padding keeps rows that are read at once in other banks (product/format).
    const int64_t columns = piece_spans() * 64 * warps(), x_padding = weights.element_bits() == 8 ? 16 : 64,
                  piece = weights.row_bytes(columns), w_row = piece + (piece % 128 == 0 ? 64 : 0);
    const int64_t of_groups = weights.is_grouped() ? 4 * weights.group_stride(stride) : 0;
    const int64_t stage = tile_rows() * ((whole ? weights.row_bytes(stride) : w_row) + of_groups) +
                          (normed || held ? 0 : 8 * token_tiles() * (2 * columns + x_padding));
    const int64_t norms = normed + post_normed + shifted;
    const int64_t x =
        normed && !gained ? spans() * (2 * token_tiles() * 512 + norms * 128) + norms * 32 * token_tiles() : 0;
    const int64_t sums = 2 * (tile_rows() == 16 ? 24 : 8) * 8 * token_tiles() * 4;
    const int64_t tokens = 8 * token_tiles(), of_rows = held ? 0 : kBarrierBytes + tokens * (2 * stride + x_padding),
                  of_gained = gained ? of_rows + warps() * tokens * 4 : 0;
    const int64_t of_range = tokens * (most_outputs(sm_count) + 1) / 2 * 8,
                  of_tiles = 2 * (tokens * tile_rows() / 2 * 8 + 8),
                  of_cluster = splits() == 1 ? 0
                               : meets       ? of_tiles
                                             : of_range,
                  parts = keeps_sums ? of_range : of_cluster;
    return kBarrierBytes + ring * ((stage + 127) / 128 * 128) + of_gained + warps() * (x + sums) + parts;
  }
  // The longest that fits a block's shared memory; 0: none does.
  constexpr int64_t ring(int64_t sm_count, int64_t most_shared_bytes) const {
    const int64_t most = most_ring(sm_count);
    for (int64_t n = most; n >= std::min<int64_t>(2, most); --n)
      if (shared_bytes(sm_count, n) <= most_shared_bytes) return n;
    return 0;
  }
  // The same in pieces that are as small as a block's shared memory asks for. Sums of two blocks meet tile by tile
  // where it does not hold those of all tiles; those of any with `meets`.
  constexpr TileShape fitting(int64_t sm_count, int64_t most_shared_bytes) const {
    TileShape shape = *this;
    shape.meets = meets || (splits() == 2 && !keeps_sums && ring(sm_count, most_shared_bytes) == 0);
    while (!held && shape.ring(sm_count, most_shared_bytes) == 0 && shape.piece_spans() > whole_groups(1))
      shape.tuning.piece = shape.piece_spans() / 2;
    return shape;
  }

  constexpr ShapeConstants<11> constants(int64_t ring, int64_t sm_count = 0) const {
    return {{{"kTokenTiles", token_tiles()},
             {"kCols", cols},
             {"kStride", stride},
             {"kThreads", threads()},
             {"kSpans", spans()},
             {"kPieceSpans", piece_spans()},
             {"kTileRows", tile_rows()},
             {"kRing", ring},
             {"kHeld", held ? (meets && splits() > 1 ? 2 : 1) : 0},
             {"kSplits", splits()},
             {"kRanges", groups() > 1 ? ranges(sm_count) : 0}}};
  }

  // One block an SM: two, of half the warps, take 1.24 ms where one takes 1.120.
  constexpr LaunchShape launch_shape(int64_t sm_count, int64_t ring) const {
    const auto of_cluster = static_cast<unsigned>(splits());
    return {{static_cast<unsigned>(range_blocks(sm_count)) * of_cluster, static_cast<unsigned>(groups()), 1},
            {static_cast<unsigned>(threads()), 1, 1},
            static_cast<unsigned>(shared_bytes(sm_count, ring)),
            {of_cluster, 1, 1}};
  }

 private:
  static constexpr int64_t kBarrierBytes = 128;
  constexpr int64_t span_bytes() const {
    return warps() * (tile_rows() * weights.row_bytes(64) + (normed || held ? 0 : 16 * 64 * token_tiles()));
  }
};

}  // namespace nodewright
