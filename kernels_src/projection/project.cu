// y[m, n] = sum_k x[m, k] * W[n, k] + bias[n]. Block (b, t): outputs range b, rows t * kTile .. + kTile - 1.
#include "kernels_src/product/end/store.cuh"
#include "kernels_src/product/rows.cuh"
#include "kernels_src/projection/project.h"

NODEWRIGHT_KERNEL(project, Project, kThreads) { product<Plain, Store>(args); }
