// tile_norm_gate_up with what each row's adapter adds to g and u. Block b: a range of elements, all rows.
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/adapters/adapter_delta.cuh"
#include "kernels_src/projection/activation.cuh"
#include "kernels_src/tile/tile_normed_rows.cuh"

NODEWRIGHT_KERNEL_OF(tile_adapted_gate_up, AdaptedGateUp, kThreads, kBlocksOfSm) {
  constexpr int kUnit = kGated != 0 ? 2 : 1;
  PairBiases biases;
  tile_project_normed(
      args, kUnit, [&](int j, int n, int) { biases.request(args, j, n); },
      [&](int j, int n, int m, float first, float second, bool is_last) {
        biases.add(j, first, second);
        first = adapted<kRank>(args.adapter, m, n, 0, kUnit, first);
        if (!is_last) second = adapted<kRank>(args.adapter, m, n + 1, kUnit - 1, kUnit, second);
        if constexpr (kGated != 0) {
          args.y.data[m * args.y_stride + n / 2] = to_bf16(activate(first) * second);
        } else {
          bf16* y = args.y.data + m * args.y_stride + n;
          y[0] = to_bf16(activate(first));
          if (!is_last) y[1] = to_bf16(activate(second));
        }
      });
}
