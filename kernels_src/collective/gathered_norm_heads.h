// Norms queries and keys over the heads of all ranks, where a library has brought the sums of squares of all here.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct GatheredNormHeads {
  InOut<float> qkv;     // [rows, stride]: this rank's heads q, then kv_heads k, then kv_heads v, head_dim each
  In<float> squares;    // [kRanks, rows, 2] of queries, of keys
  Frozen<bf16> q_gain;  // [heads * head_dim] of this rank
  Frozen<bf16> k_gain;  // [kv_heads * head_dim]
  In<int32_t> n_live;   // [1] rows that count, the same on all ranks
  int64_t stride;
  int64_t rows;  // of the bucket
  float eps;
};

// Constants: kRanks, kHeads, kKvHeads, kHeadDim; kNorm (kernels_src/residual/norm.h, not a LayerNorm).
inline constexpr unsigned kGatheredNormHeadsThreads = 256;
// A block for the queries of a row and one for its keys.
constexpr LaunchShape gathered_norm_heads_shape(unsigned rows) {
  return {{rows, 2, 1}, {kGatheredNormHeadsThreads, 1, 1}, 0};
}

}  // namespace nodewright
