// y[m, n] = sum_k x[m, k] * W[n, k] + bias[n] on tensor cores; project of 2 rows and more. Block b: outputs range b,
// all rows.
#include "kernels_src/product/end/store.cuh"
#include "kernels_src/product/tiles.cuh"
#include "kernels_src/projection/project.h"

NODEWRIGHT_KERNEL_OF(tile_project, Project, kThreads, kBlocksOfSm) { product<Plain, Store>(args); }
