// Paged attention of a prompt's rows on tensor cores: tiles of rows, each of which attends to all keys up to its own.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/attention/kv_pages.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct AttendTiles {
  In<float> q;              // [rows, heads, head_dim] rotated
  In<bf16> kv;              // one layer's pool (kv_pages.h)
  In<int32_t> positions;    // [rows]; keys 0 .. position are attended, or the last `window` of them
  In<int32_t> sequences;    // [rows]; rows of a sequence lie together, at successive positions
  In<int32_t> block_table;  // [sequences, table_stride] pool pages of each sequence, in order
  In<int32_t> n_first;      // [1] rows before this one are somebody else's
  In<int32_t> n_live;       // [1]
  PartialOut<bf16> y;       // [rows, y_stride]: heads * head_dim elements a row, of rows n_first to n_live
  int64_t table_stride;
  int64_t y_stride;       // even
  int64_t window;         // keys a row attends to at most, its own included: those above position - window; 0: all
  float scale;            // of q . k, times log2(e): probabilities are powers of two; of FP8 times the keys' scale
  float value_scale = 1;  // of FP8 codes (kv_pages.h)
};

// Rows and threads of a tile that `warpgroups` multiply, 64 rows each, while one more copies keys and values; 0: four
// warps do both.
constexpr int64_t attend_tiles_rows(int64_t warpgroups) { return warpgroups > 0 ? 64 * warpgroups : 64; }
constexpr int64_t attend_tiles_threads(int64_t warpgroups) { return 128 * (warpgroups + 1); }

struct AttendTilesShape {
  int64_t rows = 64, heads = 1, kv_heads = 1, head_dim = 64;  // head_dim: even, at most 256
  unsigned most_shared_bytes = 227 << 10;                     // of a block on the device
  bool by_warpgroups = false;                                 // whether the device has wgmma: compute capability 9.0
  CacheFormat cache = CacheFormat::bf16;

  static constexpr int64_t kPageTokens = 64;
  static constexpr int64_t kStagedPages = 3;  // of FP8, on their way to warpgroups
  constexpr int64_t tile_dim() const { return (head_dim + 15) / 16 * 16; }
  // As many as have registers for their rows, where shared memory holds two pages: with one, warpgroups that take turns
  // would wait for each other.
  constexpr int64_t warpgroups() const {
    const int64_t most = !by_warpgroups ? 0 : head_dim == 64 ? 3 : head_dim == 128 ? 2 : 0;
    return most > 0 && bytes_by_warpgroups(most, 2) <= most_shared_bytes ? most : 0;
  }
  constexpr int64_t tile_rows() const { return attend_tiles_rows(warpgroups()); }
  // With warpgroups: q, `stages` pages of keys and values, and their barriers (page_ring.cuh). Else pages whose rows
  // are an odd number of 16 bytes, so that the eight rows of a matrix lie in different banks, and where q does not fit
  // into registers, q.
  constexpr unsigned shared_bytes(int64_t stages) const {
    if (warpgroups() > 0) return bytes_by_warpgroups(warpgroups(), stages);
    const int64_t row = (tile_dim() * element_bytes(cache) / 16 | 1) * 16, q = 2 * (tile_dim() + 8);
    return static_cast<unsigned>((2 * stages * row + (tile_dim() > 128 ? q : 0)) * kPageTokens);
  }
  constexpr int64_t stages() const {
    int64_t held = warpgroups() > 0 ? 4 : 2;
    while (held > 1 && shared_bytes(held) > most_shared_bytes) --held;
    return held;
  }
  constexpr unsigned shared_bytes() const { return shared_bytes(stages()); }
  constexpr LaunchShape launch_shape() const {
    return {{static_cast<unsigned>(heads), static_cast<unsigned>((rows + tile_rows() - 1) / tile_rows()), 1},
            {static_cast<unsigned>(attend_tiles_threads(warpgroups())), 1, 1},
            shared_bytes()};
  }
  constexpr ShapeConstants<2> constants() const { return {{{"kStages", stages()}, {"kWarpgroups", warpgroups()}}}; }

 private:
  constexpr unsigned bytes_by_warpgroups(int64_t groups, int64_t stages) const {
    const int64_t rows_held = 2 * stages * kPageTokens + attend_tiles_rows(groups);
    const int64_t staged = cache == CacheFormat::fp8 ? kStagedPages * 2 * kPageTokens * head_dim : 0;
    return static_cast<unsigned>(1024 + rows_held * head_dim * 2 + 32 * stages + staged);
  }
};

}  // namespace nodewright
