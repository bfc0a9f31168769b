// residual[m, n] += (sum_k x[m, k] * W[n, k] + bias[n]) * kScale on tensor cores; project_add in tiles.
// Blocks: product/tiles/tile_stream.cuh. With kLeavesGained also the rows that the next norm starts from
// (product/end/add.cuh).
#include "kernels_src/product/end/add.cuh"
#include "kernels_src/product/tiles.cuh"
#include "kernels_src/projection/project_add.h"

NODEWRIGHT_KERNEL_OF(tile_project_add, ProjectAdd, kThreads, kBlocksOfSm) {
  product<Plain, Add<kScale, kLeavesGained != 0>>(args);
}
