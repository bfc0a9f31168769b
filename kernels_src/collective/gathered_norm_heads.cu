// x[i] = x[i] / rms(x of all ranks) * gain[i], where x is the queries of a row or its keys. Block (m, n): queries (n 0)
// or keys (n 1) of row m.
#include "kernels_src/attention/width_norm.cuh"
#include "kernels_src/collective/gathered_norm_heads.h"

NODEWRIGHT_KERNEL(gathered_norm_heads, GatheredNormHeads, kGatheredNormHeadsThreads) {
  release_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  if (row >= args.n_live.data[0]) return;
  const bool of_keys = blockIdx.y == 1;
  const int64_t heads = of_keys ? kKvHeads : kHeads;
  const bf16* const gain = of_keys ? args.k_gain.data : args.q_gain.data;
  const float* const of_row = args.squares.data + 2 * row + blockIdx.y;
  float squares = of_row[0];
  NODEWRIGHT_UNROLL_BY(8)
  for (int64_t rank = 1; rank < kRanks; ++rank) squares = __fadd_rn(squares, of_row[2 * rank * args.rows]);
  const float scale = width_scale(squares, heads * kRanks, args.eps);
  float* const x = args.qkv.data + row * args.stride + (of_keys ? kHeads * kHeadDim : 0);
  NODEWRIGHT_UNROLL_BY(8)
  for (int i = static_cast<int>(threadIdx.x); i < heads * kHeadDim; i += static_cast<int>(kGatheredNormHeadsThreads))
    x[i] = normed_element(x[i], scale, gain[i]);
}
