// y[p, i] = f(h . W[e, 2i]) * (h . W[e, 2i + 1]) on tensor cores, for every pair p of a row and an expert e that it has
// chosen, h = x[p / kChosen].
#include "kernels_src/elementwise/activation.cuh"
#include "kernels_src/experts/expert_tiles.cuh"
#include "kernels_src/experts/expert_tiles.h"

NODEWRIGHT_KERNEL(tile_expert_gate_up, ExpertGateUp, kExpertTilesThreads) {
  multiply_experts(
      args, [](int pair) { return static_cast<int64_t>(pair / static_cast<int>(kChosen)); },
      [&](int pair, int row, float gate, float up) {
        args.to.y.data[pair * args.to.y_stride + row / 2] = to_bf16(activate<kActivation>(gate) * up);
      });
}
