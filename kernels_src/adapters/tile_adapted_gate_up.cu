// tile_norm_gate_up with what each row's adapter adds to g and u. Block b: a range of elements, all rows.
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/product/end/adapted.cuh"
#include "kernels_src/product/end/gate_up.cuh"
#include "kernels_src/product/normed_tiles.cuh"

NODEWRIGHT_KERNEL_OF(tile_adapted_gate_up, AdaptedGateUp, kThreads, kBlocksOfSm) {
  product<Normed, Adapted<GateUp<kGated != 0, kActivation>, kAdapterRank>>(args.of, args.adapter);
}
