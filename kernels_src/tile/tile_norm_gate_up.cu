// y[m, i] = f(g) * u, g = h[m] . W[2i], u = h[m] . W[2i + 1], h = norm(x), on tensor cores, norm(x) rounded to bf16, an
// RMS norm's before its scale; with kGated 0 y[m, i] = f(h[m] . W[i]). Biases, if any, belong to the products.
// norm_gate_up in tiles. Blocks: product/tiles/tile_stream.cuh. f: kActivation.
#include "kernels_src/product/end/gate_up.cuh"
#include "kernels_src/product/normed_tiles.cuh"
#include "kernels_src/projection/norm_gate_up.h"

NODEWRIGHT_KERNEL_OF(tile_norm_gate_up, NormGateUp, kThreads, kBlocksOfSm) {
  product<Normed, GateUp<kGated != 0, kActivation>>(args);
}
