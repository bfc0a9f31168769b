// Paged attention of one new token a row over all keys up to its own, split over the context, combined in the launch.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct Attend {
  In<float> q;                   // [rows, heads, head_dim] rotated
  In<bf16> kv;                   // one layer's pool (kv_pages.h)
  Settled<int32_t> positions;    // [rows]; keys 0 .. position are attended, or the last `window` of them
  Settled<int32_t> sequences;    // [rows]
  Settled<int32_t> block_table;  // [sequences, table_stride] pool pages of each sequence, in order
  Settled<int32_t> n_live;       // [1]
  PartialOut<bf16> y;            // [rows, y_stride]: heads * head_dim elements a row
  // [rows, head_tiles, splits, head_tile, head_dim + 2] weighted values, then max, then sum; empty if nothing is split
  Optional<InOut<float>> partials = {};
  // [rows, head_tiles] splits that have written their partials; zero between launches
  Optional<InOut<int32_t>> arrivals = {};
  int64_t table_stride;
  int64_t y_stride;
  int64_t window;         // keys a row attends to at most, its own included: those above position - window; 0: all
  float scale;            // of q . k, times log2(e): probabilities are powers of two; of FP8 times the keys' scale
  float value_scale = 1;  // of FP8 codes (kv_pages.h); flash_decode alone takes them
};

// How the heads and the context of a row are dealt to blocks.
struct AttendShape {
  int64_t rows = 1, heads = 1, kv_heads = 1, head_dim = 64;
  int64_t splits = 1;  // upper bound on blocks over one row's context

  int64_t warps = 8, unroll = 2;  // unroll: keys a lane requests at once
  constexpr int64_t padded_head_dim() const { return (head_dim + 7) / 8 * 8; }
  constexpr int64_t group() const { return heads / kv_heads; }
  // Query heads a block handles, all of one kv head: registers hold q and the weighted values of each, and a warp
  // weighs the partials of one.
  constexpr int64_t head_tile() const {
    int64_t tile = group();
    while (tile > 4) {  // the largest divisor of the group that is at most 4
      int64_t next = tile - 1;
      while (group() % next != 0) --next;
      tile = next;
    }
    return tile;
  }
  constexpr int64_t head_tiles() const { return heads / head_tile(); }
  // Lanes that share one key: 8 elements each.
  constexpr int64_t lanes() const {
    int64_t n = 1;
    while (n * 8 < padded_head_dim()) n *= 2;
    return n;
  }
  constexpr int64_t slots() const { return 32 / lanes() * warps; }  // keys in flight in a block
  constexpr int64_t partial_floats() const { return head_tile() * (head_dim + 2); }
  constexpr int64_t pass() const { return slots() * unroll; }  // keys a block requests at once
  constexpr unsigned shared_bytes() const {                    // AttendMemory (attention/split_attention.cuh)
    const int64_t weights = splits > slots() ? splits : slots();
    const int64_t of_head = slots() * padded_head_dim() + 2 * pass() + 2 + weights + 2;
    return static_cast<unsigned>(4 * (head_tile() * of_head + 4));
  }
  constexpr ShapeConstants<5> constants() const {
    return {
        {{"kHeadTile", head_tile()}, {"kLanes", lanes()}, {"kSplits", splits}, {"kWarps", warps}, {"kUnroll", unroll}}};
  }
  constexpr LaunchShape launch_shape() const {
    return {{static_cast<unsigned>(splits), static_cast<unsigned>(head_tiles()), static_cast<unsigned>(rows)},
            {static_cast<unsigned>(32 * warps), 1, 1},
            shared_bytes()};
  }
};

// Constants: kHeads, kKvHeads, kHeadDim, kPaddedHeadDim, kCacheFormat, kPageSize and the shape's.

}  // namespace nodewright
