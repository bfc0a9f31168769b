// residual[m, n] += kScale * sum_j weights[m, j] * (x[m, j] . W[experts[m, j], n]), in the order of j. Block (b, m):
// kRowsOfBlock outputs; kParts warps an expert, all experts of the row at once.
#include "kernels_src/experts/expert_down_add.h"
#include "kernels_src/experts/expert_down_rows.cuh"

NODEWRIGHT_KERNEL(expert_down_add, ExpertDownAdd, kThreads) {
  sum_expert_rows(args, [&](int64_t row, int n, float sum) {
    args.residual.data[row * args.residual_stride + n] += scaled_by<kScale>(sum);
  });
}
