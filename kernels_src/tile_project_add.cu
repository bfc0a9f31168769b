// residual[m, n] += sum_k x[m, k] * W[n, k] on tensor cores; project_add of 2 rows and more, without a bias. Block b:
// outputs range b, all rows.
#include "kernels_src/device/tile_stream.cuh"
#include "kernels_src/project_add.h"

NODEWRIGHT_KERNEL(tile_project_add, ProjectAdd, kThreads) {
  constexpr int kPairsOfTile = kTileRows / 2 * kTokens;
  constexpr int kOwned = static_cast<int>((kPairsOfTile + kThreads - 1) / kThreads);  // pairs of outputs of a thread
  const OutputRange range = block_outputs(args.outputs, 1);
  int live = 0, next = 0;
  float residual[kOwned][2];
  const auto at = [&](int n, int m) { return args.residual.data + m * args.residual_stride + n; };
  tile_project_rows(
      args, range, live,
      [&](int tile) {  // read while the tile's weights are on their way, in the order of the stores
        next = 0;
        NODEWRIGHT_UNROLL
        for (int j = 0; j < kOwned; ++j) {
          const int i = static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads);
          const int n = tile + i % (kTileRows / 2) * 2, m = i / (kTileRows / 2);
          NODEWRIGHT_UNROLL
          for (int k = 0; k < 2; ++k)
            if (i < kPairsOfTile && m < live && n + k < range.last) residual[j][k] = at(n, m)[k];
        }
      },
      [&](int n, int m, float first, float second) {
        const int j = kOwned == 1 ? 0 : next++;
        if (m >= live) return;
        at(n, m)[0] = residual[j][0] + first;
        if (n + 1 < range.last) at(n, m)[1] = residual[j][1] + second;
      });
}
