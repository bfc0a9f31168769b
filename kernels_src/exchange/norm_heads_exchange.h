// Norms queries and keys over the heads of all ranks of a team, of which each has a part: what crosses is a sum of
// squares of each.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// Takes part in one exchange of a value for each row and strip: strip 0 is all queries of a row, strip 1 all its keys.
struct NormHeadsExchange {
  InOut<float> qkv;     // [rows, stride]: this rank's heads q, then kv_heads k, then kv_heads v, head_dim each
  Frozen<bf16> q_gain;  // [heads * head_dim] of this rank
  Frozen<bf16> k_gain;  // [kv_heads * head_dim]
  In<int32_t> n_live;   // [1] rows that count, the same on all ranks
  int64_t stride;
  int64_t first_strip;  // the grid's: both, or one
  float eps;
  Exchange exchange;  // packet m * strips + n: row m, the grid's strip n
};

// Constants: kRanks, kHeads, kKvHeads, kHeadDim; kNorm (kernels_src/residual/norm.h, not a LayerNorm).
inline constexpr unsigned kNormHeadsThreads = 256;
// A block for each strip of a row, or of several rows, so that all run at once.
constexpr LaunchShape norm_heads_exchange_shape(unsigned rows, unsigned strips, unsigned sm_count) {
  const unsigned most = 2 * sm_count / strips;
  return {{rows < most ? rows : most, strips, 1}, {kNormHeadsThreads, 1, 1}, (kNormHeadsThreads / 32 + 1) * 4};
}

}  // namespace nodewright
