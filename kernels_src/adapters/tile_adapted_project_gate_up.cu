// tile_project_gate_up with what each row's adapter adds to g and u. Block b: a range of elements, all rows.
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/product/end/adapted.cuh"
#include "kernels_src/product/end/gate_up.cuh"
#include "kernels_src/product/tiles.cuh"

NODEWRIGHT_KERNEL_OF(tile_adapted_project_gate_up, AdaptedProjectGateUp, kThreads, kBlocksOfSm) {
  product<Plain, Adapted<GateUp<kGated != 0, kActivation>, kAdapterRank>>(args.of, args.adapter);
}
