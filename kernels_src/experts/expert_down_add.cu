// residual[m, n] += kScale * sum_j weights[m, j] * (x[m, j] . W[experts[m, j], n]), in the order of j. Block (b, m):
// kRowsOfBlock outputs; kParts warps an expert, all experts of the row at once.
#include "kernels_src/experts/expert_down_rows.cuh"
#include "kernels_src/experts/expert_down_rows.h"

NODEWRIGHT_KERNEL(expert_down_add, ExpertDownAdd, kThreads) {
  sum_expert_rows(args, [&](int64_t row, int n, float sum) {
    args.to.residual.data[row * args.to.stride + n] += scaled_by<kScale>(sum);
  });
}
