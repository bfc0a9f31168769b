// Rows of x that are streamed past a matrix as they lie, beside its weights; or that stay in registers, with kHeld.
//
// Constants: those of product/tiles/tile_stream.cuh.
#pragma once

#include "kernels_src/product/tiles/tile_held_rows.cuh"

namespace nodewright {

// How many there are.
NODEWRIGHT_DEVICE int rows_of(const RowsIn& in) {
  return static_cast<int>(in.x.count / static_cast<uint64_t>(in.x_stride));
}

// Rows of x that are copied piece by piece, in bf16.
struct StreamedRows {
  static constexpr int kRowBytes = kPieceColumns * 2 + Weights::kXPadding;
  static constexpr int kStageBytes = kTokens * kRowBytes;
  static constexpr int kGainWords = 0;
  static constexpr int kPaddedCols = static_cast<int>(kCols + 7) / 8 * 8;

  const bf16* from;  // [rows, stride]
  int64_t stride;    // elements
  int rows;          // that there are

  NODEWRIGHT_DEVICE explicit StreamedRows(const RowsIn& in) : from(in.x.data), stride(in.x_stride), rows(rows_of(in)) {}

  // What the ring's i-th stage wants.
  template <class Ring>
  NODEWRIGHT_DEVICE void request(Ring& ring, int i, int slot) const {
    const int column = Ring::first_column(i), left = kPaddedCols - column;
    ring.copies.template request<CopyForm::rows>(
        slot, {ring.stage_rows(slot), from + column, rows < kTokens ? rows : kTokens,
               (left < kPieceColumns ? left : kPieceColumns) * 2, kRowBytes, stride * 2});
  }
  NODEWRIGHT_DEVICE uint4 fragment(const unsigned char* stage, int i, int span, int s, int n) const {
    const int left = static_cast<int>(kCols) - span_column(span) - Weights::step_column(s) - lane_column();
    if (!kExact && left <= 0) return uint4{0u, 0u, 0u, 0u};
    uint4 x = load_16(stage + (n * 8 + lane_of_warp() / 4) * kRowBytes +
                      (span_column(i) + Weights::step_column(s) + lane_column()) * 2);
    if constexpr (kCols % 8 != 0) {  // columns from kCols on are undefined
      const auto keep = [&](uint32_t pair, int k) {
        return left >= k + 2 ? pair : left == k + 1 ? pair & 0xffffu : 0u;
      };
      x = uint4{keep(x.x, 0), keep(x.y, 2), keep(x.z, 4), keep(x.w, 6)};
    }
    return x;
  }
};

// The whole of a kernel without a norm: requests weights, waits, streams rows and weights, stores. `live`, of the rows
// of x, is set before the first call of before or store. These and range_end are stream_tiles'.
template <class Args, class Before, class Store, class RangeEnd>
NODEWRIGHT_DEVICE void tile_project_rows(const Args& args, BlockRanges ranges, int& live, Before before, Store store,
                                         RangeEnd range_end) {
  if constexpr (kHeld != 0) {
    tile_project_held<0>(
        args.w, args.from.x.data, args.from.x_stride, rows_of(args.from), args.n_live.data, ranges, live, [] {},
        [](unsigned char*) {}, before, store, range_end);
  } else {
    using Ring = TileRing<StreamedRows>;
    Ring ring(args.w, ranges, shared_memory());
    ring.start();
    const StreamedRows rows(args.from);
    release_dependents();
    wait_for_inputs();
    live = args.n_live.data[0];
    stream_tiles(ring, rows, reinterpret_cast<float*>(shared_memory() + Ring::kBytes), before, store, range_end);
  }
}

}  // namespace nodewright
