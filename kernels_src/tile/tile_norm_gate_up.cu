// y[m, i] = f(g) * u, g = h[m] . W[2i], u = h[m] . W[2i + 1], h = norm(x), on tensor cores, norm(x) rounded to bf16
// before its scale; norm_gate_up of 2 rows and more, with a gate and without biases. Block b: a range of elements, all
// rows. f: kActivation.
#include "kernels_src/projection/activation.cuh"
#include "kernels_src/projection/norm_gate_up.h"
#include "kernels_src/tile/tile_normed_rows.cuh"

NODEWRIGHT_KERNEL_OF(tile_norm_gate_up, NormGateUp, kThreads, kBlocksOfSm) {
  tile_project_normed(args, 2, [&](int, int n, int m, float gate, float up, bool) {
    args.y.data[m * args.y_stride + n / 2] = to_bf16(activate(gate) * up);
  });
}
