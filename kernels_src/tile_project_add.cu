// residual[m, n] += sum_k x[m, k] * W[n, k] on tensor cores; project_add of 2 rows and more, without a bias. Block b:
// outputs range b, all rows.
#include "kernels_src/device/tile_rows.cuh"
#include "kernels_src/project_add.h"

NODEWRIGHT_KERNEL(tile_project_add, ProjectAdd, kThreads) {
  const OutputRange range = block_outputs(args.outputs, 1);
  int live = 0;
  float residual[kOwned][2];
  const auto at = [&](int n, int m) { return args.residual.data + m * args.residual_stride + n; };
  tile_project_rows(
      args, range, live,
      [&](int j, int n, int m) {  // read while the tile's weights are on their way
        NODEWRIGHT_UNROLL
        for (int k = 0; k < 2; ++k)
          if (m < live && n + k < range.last) residual[j][k] = at(n, m)[k];
      },
      [&](int j, int n, int m, float first, float second) {
        if (m >= live) return;
        at(n, m)[0] = residual[j][0] + first;
        if (n + 1 < range.last) at(n, m)[1] = residual[j][1] + second;
      });
}
