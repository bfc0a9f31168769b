// Rows of x that are streamed past a matrix as they lie, beside its weights.
//
// Constants: those of device/tile_stream.cuh.
#pragma once

#include "kernels_src/device/tile_stream.cuh"

namespace nodewright {

// Rows of x that are copied span by span, in bf16: of args.x, the first kCols elements of rows args.x_stride apart.
struct StreamedRows {
  static constexpr int kWords = 2 * kTiles;  // of a lane and span, in the ring: [2][kTokenTiles]

  const bf16* from;  // this lane's columns of its row of the first 8
  int64_t stride;    // of 8 rows
  int rows;          // of x, that there are from this lane's first on

  template <class Args>
  NODEWRIGHT_DEVICE explicit StreamedRows(const Args& args)
      : from(args.x.data + lane_of_warp() / 4 * args.x_stride + lane_column()),
        stride(8 * args.x_stride),
        rows(static_cast<int>(args.x.count / static_cast<uint64_t>(args.x_stride)) - lane_of_warp() / 4) {}

  template <class Copies>
  NODEWRIGHT_DEVICE void request(Copies& copies, bf16* words, int span) const {
    NODEWRIGHT_UNROLL
    for (int s = 0; s < 2; ++s) {
      const int column = span_column(span) + s * 32;
      const bool counts = kExact || column + lane_column() < kCols;
      NODEWRIGHT_UNROLL
      for (int n = 0; n < kTiles; ++n)
        copies.request(words + (s * kTiles + n) * kWordStride, from + n * stride + column, counts && n * 8 < rows);
    }
  }
  NODEWRIGHT_DEVICE uint4 fragment(const bf16* words, int span, int s, int n) const {
    uint4 x = load_16(words + (s * kTiles + n) * kWordStride);
    if constexpr (kCols % 8 != 0) {  // what follows the last column is anything
      const int left = static_cast<int>(kCols) - span_column(span) - s * 32 - lane_column();
      const auto keep = [&](uint32_t pair, int i) {
        return left >= i + 2 ? pair : left == i + 1 ? pair & 0xffffu : 0u;
      };
      x = uint4{keep(x.x, 0), keep(x.y, 2), keep(x.z, 4), keep(x.w, 6)};
    }
    return x;
  }
};

// The whole of a kernel without a norm: requests weights, waits, streams rows and weights, stores. `live`, of the rows
// of x, is set before the first call of before or store.
template <class Args, class Before, class Store>
NODEWRIGHT_DEVICE void tile_project_rows(const Args& args, OutputRange range, int& live, Before before, Store store) {
  using Ring = SpanRing<StreamedRows>;
  Ring ring(args.weight.data, range, shared_memory());
  ring.start();
  const StreamedRows rows(args);
  release_dependents();
  wait_for_inputs();
  live = args.n_live.data[0];
  stream_tiles(range, ring, rows, reinterpret_cast<float*>(shared_memory() + Ring::kBytes), before, store);
}

}  // namespace nodewright
