// y[m, i] = f(g) * u, g = x[m] . W[2i], u = x[m] . W[2i + 1], on tensor cores; with kGated 0 y[m, i] = f(x[m] . W[i]).
// Biases, if any, belong to the products. Blocks: product/tiles/tile_stream.cuh. f: kActivation.
#include "kernels_src/product/end/gate_up.cuh"
#include "kernels_src/product/tiles.cuh"
#include "kernels_src/projection/project_gate_up.h"

NODEWRIGHT_KERNEL_OF(tile_project_gate_up, ProjectGateUp, kThreads, kBlocksOfSm) {
  product<Plain, GateUp<kGated != 0, kActivation>>(args);
}
