// norm_gate_up with what each row's adapter adds to g and u. Block (b, t): a range of elements, kTile rows.
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/product/end/adapted.cuh"
#include "kernels_src/product/end/gate_up.cuh"
#include "kernels_src/product/normed_rows.cuh"

NODEWRIGHT_KERNEL(adapted_gate_up, AdaptedGateUp, kThreads) {
  product<Normed, Adapted<GateUp<kGated != 0, kActivation>, kAdapterRank>>(args.of, args.adapter);
}
