// RopeAppend and flash_decode in one launch, for any rows, also of one sequence: the keys of earlier steps are settled
// and are requested while the projection before still runs.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/attention/kv_pages.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct RopeFlashDecode {
  In<float> qkv;  // [rows, qkv_stride]: heads q, then kv_heads k, then kv_heads v, head_dim each
  Optional<Frozen<float>> frequencies = {};  // [head_dim / 2] radians a position; empty if kRotate is 0
  Optional<Frozen<bf16>>
      q_gain;  // [head_dim], or with kHeadNorm 2 [heads * head_dim], of the queries' norm; empty if it is 0
  Optional<Frozen<bf16>> k_gain = {};      // [head_dim] of every key head
  Settled<int32_t> positions;              // [rows]; keys 0 .. position are attended, or the last `window` of them
  Settled<int32_t> sequences;              // [rows]; rows of the same one have different positions
  Settled<int32_t> block_table;            // [sequences, table_stride] pool pages of each sequence, in order
  Settled<int32_t> n_live;                 // [1]
  SettledInOut<bf16> kv;                   // one layer's pool (kv_pages.h); each row writes its own position only
  PartialOut<bf16> y;                      // [rows, y_stride]: heads * head_dim elements a row
  Optional<InOut<float>> partials = {};    // as Attend's
  Optional<InOut<int32_t>> arrivals = {};  // as Attend's
  int64_t qkv_stride;
  int64_t table_stride;
  int64_t y_stride;
  int64_t window;       // keys a row attends to at most, its own included; 0: all
  float eps;            // of the norms
  float scale;          // of q . k, times log2(e); of FP8 times the keys' scale
  float key_scale = 1;  // of FP8 codes (kv_pages.h)
  float value_scale = 1;
};

// Constants and launch shape: flash_decode.h.

// Before the memory that attention needs: the new key and value, and what rotates and norms the heads.
NODEWRIGHT_BOTH constexpr unsigned rope_tile_bytes(int64_t head_tile, int64_t head_dim, int64_t padded_head_dim) {
  const int64_t bytes = 2 * 2 * padded_head_dim + 4 * (2 * (head_dim / 2) + head_tile + 1);
  return static_cast<unsigned>((bytes + 15) / 16 * 16);
}

}  // namespace nodewright
