// residual[m, n] += sum over ranks r of (sum_k x_r[m, k] * W_r[n, k] + bias_r[n]) * kScale on tensor cores, in the
// order of the ranks; project_exchange of 2 rows and more. Without kAdds y is that sum alone. Block b: outputs range b,
// all rows; of a cluster a part of them. With kLeavesGained also gained[m, n] = residual[m, n] * next_gain[n] and
// squares[b, m], the sum of the squares of residual[m, n] over the block's n (product/tiles/tile_exchanged_rows.cuh).
#include "kernels_src/product/tiles/tile_exchanged_rows.cuh"
#include "kernels_src/projection/project_exchange.h"

NODEWRIGHT_KERNEL_OF(tile_project_exchange, ProjectExchange, kThreads, kBlocksOfSm) {
  tile_project_and_exchange<End>(args);
}
