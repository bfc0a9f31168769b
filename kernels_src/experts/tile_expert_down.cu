// y[p] = x[p] . W[e]^T on tensor cores, for every pair p of a row and an expert e that it has chosen.
#include "kernels_src/experts/expert_tiles.cuh"
#include "kernels_src/experts/expert_tiles.h"

NODEWRIGHT_KERNEL(tile_expert_down, ExpertDown, kExpertTilesThreads) {
  multiply_experts(
      args, [](int pair) { return static_cast<int64_t>(pair); },
      [&](int pair, int row, float first, float second) {
        float* const y = args.to.y.data + pair * args.to.y_stride + row;
        y[0] = first;
        if (kOutputs % 2 == 0 || row + 1 < kOutputs) y[1] = second;
      });
}
