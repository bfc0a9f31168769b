// residual[m, n] += sum over ranks r of (sum_k x_r[m, k] * W_r[n, k] + bias_r[n]) * kScale, in the order of the ranks.
// Without kAdds y is that sum alone. Block (b, t): outputs range b, rows t * kTile .. + kTile - 1
// (product/rows/exchanged_rows.cuh).
#include "kernels_src/product/rows/exchanged_rows.cuh"
#include "kernels_src/projection/project_exchange.h"

NODEWRIGHT_KERNEL(project_exchange, ProjectExchange, kThreads) { project_and_exchange<End>(args); }
