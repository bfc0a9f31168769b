// Paged attention of a prompt's rows on tensor cores: tiles of rows, each of which attends to all keys up to its own.
#pragma once

#include "kernels_src/args.h"
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
  int64_t y_stride;  // even
  int64_t window;    // keys a row attends to at most, its own included: those above position - window; 0: all
  float scale;       // of q . k, times log2(e): probabilities are powers of two
};

struct AttendTilesShape {
  int64_t rows = 64, heads = 1, kv_heads = 1, head_dim = 64;  // head_dim: even, at most 256
  unsigned most_shared_bytes = 227 << 10;                     // of a block on the device

  static constexpr int64_t kTileRows = 64;  // 16 a warp
  static constexpr int64_t kPageTokens = 64;
  constexpr int64_t padded_head_dim() const { return (head_dim + 7) / 8 * 8; }
  constexpr int64_t tile_dim() const { return (head_dim + 15) / 16 * 16; }
  // Rows 16 bytes longer than they need be: the eight rows of a matrix lie in different banks.
  constexpr int64_t tile_stride() const { return tile_dim() + 8; }
  // Keys and values of two pages, of which one is on its way, or of one; where q does not fit into registers, q.
  constexpr unsigned shared_bytes(int64_t pages) const {
    const int64_t tiles = 2 * pages + (tile_dim() > 128 ? 1 : 0);
    return static_cast<unsigned>(2 * tiles * kPageTokens * tile_stride());
  }
  constexpr int64_t stages() const { return shared_bytes(2) <= most_shared_bytes ? 2 : 1; }
  constexpr unsigned shared_bytes() const { return shared_bytes(stages()); }
  constexpr LaunchShape launch_shape() const {
    return {{static_cast<unsigned>(heads), static_cast<unsigned>((rows + kTileRows - 1) / kTileRows), 1},
            {128, 1, 1},
            shared_bytes()};
  }
};

// Constants: kHeads, kKvHeads, kHeadDim, kPaddedHeadDim, kPageSize, kStages.
inline constexpr unsigned kAttendTilesThreads = 128;

}  // namespace nodewright
