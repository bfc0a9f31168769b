// residual[m, n] += sum_k x[m, k] * W[n, k] + bias[n]. Block (b, m): outputs range b, row m.
#include "examples/nanogpt/kernels/project_bias_add.h"
#include "examples/nanogpt/kernels/row_dot.cuh"

namespace nodewright {
using ProjectBiasArgs = ProjectBiasAdd<WeightElement>;
}

NODEWRIGHT_KERNEL(project_bias_add, ProjectBiasArgs, kThreads) {
  const OutputRange range = block_outputs(args.outputs);
  WeightRow row;
  request(row, args, first_output(range), range.last);
  release_dependents();
  wait_for_inputs();

  const int64_t m = blockIdx.y;
  const bool live = m < args.n_live.data[0];
  const float* x = args.x.data + m * args.x_stride;
  float* residual = args.residual.data + m * args.residual_stride;
  project_row(
      args, range, row, [&](int c, float(&columns)[kElements]) { load_columns(columns, x, lane_column(c)); },
      [&](int output, float sum) {
        if (live) residual[output] += sum;
      });
}
