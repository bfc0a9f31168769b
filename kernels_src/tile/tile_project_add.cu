// residual[m, n] += (sum_k x[m, k] * W[n, k] + bias[n]) * kScale on tensor cores; project_add of 2 rows and more. Block
// b: outputs range b, all rows. With kLeavesGained also gained[m, n] = residual[m, n] * next_gain[n] and squares[b, m],
// the sum of the squares of residual[m, n] over the block's n.
#include "kernels_src/projection/project_add.h"
#include "kernels_src/tile/tile_rows.cuh"

NODEWRIGHT_KERNEL_OF(tile_project_add, ProjectAdd, kThreads, kBlocksOfSm) {
  const OutputRange range = block_outputs<kSplits>(args.outputs, 1);
  int live = 0;
  float residual[kOwned][2], gain[kOwned][2], squares[kOwned] = {};
  PairBiases biases;
  const auto at = [&](int n, int m) { return args.residual.data + m * args.residual_stride + n; };
  tile_project_rows(
      args, range, live,
      [&](int j, int n, int m) {  // read while the tile's weights are on their way
        biases.request(args, j, n);
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int k = 0; k < 2; ++k)
          if (m < live && n + k < range.last) {
            residual[j][k] = at(n, m)[k];
            if constexpr (kLeavesGained != 0) gain[j][k] = to_float(args.next.gain.data[n + k]);
          }
      },
      [&](int j, int n, int m, float first, float second) {
        if (m >= live) return;
        biases.add(j, first, second);
        const float sums[2] = {residual[j][0] + scaled_by<kScale>(first), residual[j][1] + scaled_by<kScale>(second)};
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int k = 0; k < 2; ++k) {
          if (n + k >= range.last) break;
          at(n, m)[k] = sums[k];
          if constexpr (kLeavesGained != 0) {
            args.next.gained.data[m * args.outputs + n + k] = to_bf16(sums[k] * gain[j][k]);
            squares[j] = fmaf(sums[k], sums[k], squares[j]);
          }
        }
      });
  if constexpr (kLeavesGained != 0) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < kOwned; ++j) {  // a thread's j-th outputs are of one row of x, in every tile
      const int i = static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads);
      if (i >= kPairsOfTile) break;  // whole warps
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int offset = kHalfTile / 2; offset > 0; offset /= 2)
        squares[j] += __shfl_xor_sync(0xffffffffu, squares[j], offset);
      if (i % kHalfTile == 0)
        args.next.squares.data[static_cast<int>(blockIdx.x) * kTokens + i / kHalfTile] = squares[j];
    }
  }
}
