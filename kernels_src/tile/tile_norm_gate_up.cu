// y[m, i] = f(g) * u, g = h[m] . W[2i], u = h[m] . W[2i + 1], h = norm(x), on tensor cores, norm(x) rounded to bf16, an
// RMS norm's before its scale; with kGated 0 y[m, i] = f(h[m] . W[i]). Biases, if any, belong to the products.
// norm_gate_up of 2 rows and more. Block b: a range of elements, all rows. f: kActivation.
#include "kernels_src/projection/activation.cuh"
#include "kernels_src/projection/norm_gate_up.h"
#include "kernels_src/tile/tile_normed_rows.cuh"

NODEWRIGHT_KERNEL_OF(tile_norm_gate_up, NormGateUp, kThreads, kBlocksOfSm) {
  PairBiases biases;
  tile_project_normed(
      args, kGated != 0 ? 2 : 1, [&](int j, int n, int) { biases.request(args, j, n); },
      [&](int j, int n, int m, float first, float second, bool is_last) {
        biases.add(j, first, second);
        if constexpr (kGated != 0) {
          args.y.data[m * args.y_stride + n / 2] = to_bf16(activate(first) * second);
        } else {
          bf16* y = args.y.data + m * args.y_stride + n;
          y[0] = to_bf16(activate(first));
          if (!is_last) y[1] = to_bf16(activate(second));
        }
      });
}
