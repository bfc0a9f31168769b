// residual[m, n] += (sum_k x[m, k] * W[n, k] + bias[n]) * kScale. Block (b, t): outputs range b, rows t * kTile .. +
// kTile - 1.
#include "kernels_src/product/end/add.cuh"
#include "kernels_src/product/rows.cuh"
#include "kernels_src/projection/project_add.h"

NODEWRIGHT_KERNEL(project_add, ProjectAdd, kThreads) { product<Plain, Add<kScale>>(args); }
