// y[m, n] = sum_j weights[m, j] * (x[m, j] . W[experts[m, j], n]), in the order of j. Block (b, m): as expert_down_add.
#include "kernels_src/experts/expert_down_rows.cuh"
#include "kernels_src/experts/expert_down_rows.h"

NODEWRIGHT_KERNEL(expert_down_sum, ExpertDownSum, kThreads) {
  sum_expert_rows(args, [&](int64_t row, int n, float sum) { args.to.y.data[row * args.to.y_stride + n] = sum; });
}
