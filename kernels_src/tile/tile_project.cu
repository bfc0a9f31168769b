// y[m, n] = sum_k x[m, k] * W[n, k] + bias[n] on tensor cores; project of 2 rows and more. Block b: outputs range b,
// all rows.
#include "kernels_src/projection/project.h"
#include "kernels_src/tile/tile_rows.cuh"

NODEWRIGHT_KERNEL(tile_project, Project, kThreads) {
  const OutputRange range = block_outputs<kSplits>(args.outputs, 1);
  int live = 0;
  PairBiases biases;
  tile_project_rows(
      args, range, live, [&](int j, int n, int) { biases.request(args, j, n); },
      [&](int j, int n, int m, float first, float second) {
        if (m >= live) return;
        biases.add(j, first, second);
        float* y = args.y.data + m * args.y_stride + n;
        y[0] = first;
        if (n + 1 < range.last) y[1] = second;
      });
}
