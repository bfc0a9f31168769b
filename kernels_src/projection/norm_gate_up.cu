// y[m, i] = f(g) * u, g = h[m] . W[2i], u = h[m] . W[2i + 1], h = norm(x); with kGated 0 y[m, i] = f(h[m] . W[i]).
// Biases, if any, belong to the products. Block (b, t): a range of elements, kTile rows. f: kActivation.
#include "kernels_src/product/end/gate_up.cuh"
#include "kernels_src/product/normed_rows.cuh"
#include "kernels_src/projection/norm_gate_up.h"

NODEWRIGHT_KERNEL(norm_gate_up, NormGateUp, kThreads) { product<Normed, GateUp<kGated != 0, kActivation>>(args); }
