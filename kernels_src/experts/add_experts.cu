// residual[m, n] += kScale * sum_j weights[m, j] * y[m, j, n], in the order of j. Block (b, m): four columns a thread.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/experts/add_experts.h"

NODEWRIGHT_KERNEL(add_experts, AddExperts, kAddExpertsThreads) {
  release_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.y, column = (blockIdx.x * kAddExpertsThreads + threadIdx.x) * 4;
  if (row >= args.n_live.data[0] || column >= args.cols) return;
  float sums[4] = {};
  NODEWRIGHT_UNROLL_BY(8)
  for (int j = 0; j < kChosen; ++j) {
    const float weight = args.weights.data[row * kChosen + j];
    const float4 y = load_fp32_4(args.y.data + (row * kChosen + j) * args.stride + column);
    sums[0] = fmaf(weight, y.x, sums[0]);
    sums[1] = fmaf(weight, y.y, sums[1]);
    sums[2] = fmaf(weight, y.z, sums[2]);
    sums[3] = fmaf(weight, y.w, sums[3]);
  }
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 4; ++i)
    if (column + i < args.cols) args.residual.data[row * args.stride + column + i] += scaled_by<kScale>(sums[i]);
}
