// RopeAppend and Attend in one launch, for rows of sequences of their own: a row's key is the only new one that it
// attends to, so that all others are settled and are requested while the projection before still runs.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/attend.h"
#include "kernels_src/kv_pages.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct RopeAttend {
  In<float> qkv;                 // [rows, qkv_stride]: heads q, then kv_heads k, then kv_heads v, head_dim each
  Frozen<float> frequencies;     // [head_dim / 2] radians a position; empty if kRotate is 0
  Frozen<bf16> q_gain;           // [head_dim] of the norm of every query head; empty if kHeadNorm is 0
  Frozen<bf16> k_gain;           // [head_dim] of every key head
  Settled<int32_t> positions;    // [rows]; keys 0 .. position are attended, or the last `window` of them
  Settled<int32_t> block_table;  // [rows, table_stride] pool pages of the row's sequence, in order
  Settled<int32_t> n_live;       // [1]
  SettledInOut<bf16> kv;         // one layer's pool (kv_pages.h); each row writes its own position only
  Out<bf16> y;                   // [rows, y_stride]: heads * head_dim elements a row
  InOut<float> partials;         // as Attend's
  InOut<int32_t> arrivals;       // as Attend's
  int64_t qkv_stride;
  int64_t table_stride;
  int64_t y_stride;
  int64_t window;  // keys a row attends to at most, its own included; 0: all
  float eps;       // of the norms
  float scale;     // of q . k, times log2(e)
};

// Constants: Attend's, and kRotate, kHeadNorm, kNorm as RopeAppend's.

// Before the memory that Attend needs: the rotated heads of q, the new key and value, and what rotates and norms them.
NODEWRIGHT_BOTH constexpr unsigned rope_attend_own_bytes(int64_t head_tile, int64_t head_dim, int64_t padded_head_dim) {
  const int64_t bytes = 2 * 2 * padded_head_dim + 4 * (head_tile * head_dim + 2 * (head_dim / 2) + head_tile + 1);
  return static_cast<unsigned>((bytes + 15) / 16 * 16);
}
constexpr LaunchShape rope_attend_shape(const AttendShape& attend) {
  LaunchShape shape = attend.launch_shape();
  shape.shared_bytes += rope_attend_own_bytes(attend.head_tile(), attend.head_dim, attend.padded_head_dim());
  return shape;
}

}  // namespace nodewright
