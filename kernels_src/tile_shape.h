// How a matrix times 2 to 32 rows is laid over the tensor cores: warps share the columns, blocks own contiguous ranges
// of outputs. Host only; the kernels get the same numbers as named constants (device/tile_stream.cuh).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels_src/launch_shape.h"

namespace nodewright {

// What a measurement has found better; 0: what TileShape says itself.
struct TileTuning {
  int64_t warps = 0;  // of a block, 1 to 8
  int64_t ring = 0;   // spans of a warp in flight, 2 to 8, where a block's shared memory holds them
  bool operator==(const TileTuning&) const = default;
};

// y[rows, outputs] = x[rows, cols] . W[outputs, cols]^T, W with `stride` bf16 elements a row (a multiple of 8).
struct TileShape {
  int64_t rows = 1;          // rows of the bucket
  int64_t cols = 0;          // elements of x that count
  int64_t stride = 0;        // elements between two rows of W: cols rounded up to 8
  int64_t outputs = 0;       // rows of W
  int64_t unit = 1;          // W rows that must stay in one block (2: a gate row and its up row)
  bool normed = false;       // x is normed first: all of it stays in shared memory
  bool post_normed = false;  // before that, what joins x is: its gain is there, too
  TileTuning tuning = {};

  // Halves of an mma instruction's left operand: buckets of up to 8 share a kernel.
  constexpr int64_t token_tiles() const { return (rows + 7) / 8; }

  // At most 8: fewest spans of 64 columns lacking, then the most warps.
  constexpr int64_t warps() const {
    if (tuning.warps > 0) return tuning.warps;
    const int64_t all = (stride + 63) / 64;
    int64_t best = 1, least = INT64_MAX;
    for (int64_t w = std::min<int64_t>(4, all); w <= std::min<int64_t>(8, all); ++w) {
      const int64_t lacking = (all + w - 1) / w * w - all;
      if (lacking <= least) best = w, least = lacking;
    }
    return best;
  }
  constexpr int64_t threads() const { return 32 * warps(); }
  // Of a warp; each is 64 columns of a row.
  constexpr int64_t spans() const { return (stride + 64 * warps() - 1) / (64 * warps()); }

  // Spans of a warp on their way to shared memory, where that is large enough: 96 KiB of weights a block. On one H200
  // (2026-11-22, Llama-3.2-1B, 1024 keys) a step of 8 rows takes 1.120 ms with 6, 1.240 with 4, 1.20 with 8; of 16 rows
  // 1.277 with 4, 1.326 with 5 and 6 (docs/decisions/0011).
  constexpr int64_t most_ring() const { return tuning.ring > 0 ? tuning.ring : token_tiles() == 1 ? 6 : 4; }
  static constexpr int64_t kLeastRing = 2;

  constexpr int64_t shared_bytes(int64_t ring) const {
    const int64_t words = 4 + (normed ? 0 : 2 * token_tiles());  // of 16 bytes a lane, of a span
    const int64_t norms = normed + post_normed;
    const int64_t x = normed ? spans() * (2 * token_tiles() * 512 + norms * 128) + norms * 32 * token_tiles() : 0;
    const int64_t sums = 2 * 24 * 8 * token_tiles() * 4;
    return warps() * (ring * words * 512 + x + sums);
  }
  // The longest that fits a block's shared memory; 0: none does.
  constexpr int64_t ring(int64_t most_shared_bytes) const {
    for (int64_t n = most_ring(); n >= kLeastRing; --n)
      if (shared_bytes(n) <= most_shared_bytes) return n;
    return 0;
  }

  // One block an SM: two, of half the warps, take 1.24 ms where one takes 1.120.
  constexpr LaunchShape launch_shape(int64_t sm_count, int64_t ring) const {
    const auto blocks = static_cast<unsigned>(std::min(outputs / unit, sm_count));
    return {{blocks, 1, 1}, {static_cast<unsigned>(threads()), 1, 1}, static_cast<unsigned>(shared_bytes(ring))};
  }
};

}  // namespace nodewright
