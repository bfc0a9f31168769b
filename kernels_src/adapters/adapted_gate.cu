// gate with what each row's adapter adds to x and its bias, in fp32, before the activation.
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/elementwise/gate_row.cuh"
#include "kernels_src/product/end/adapter_delta.cuh"

NODEWRIGHT_KERNEL(adapted_gate, AdaptedGate, kGateThreads) {
  gate_row(args.of, [&](int64_t row, int64_t i, float(&v)[8]) {
    constexpr int kUnit = kGated != 0 ? 2 : 1;
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j)
      if (i + j / kUnit < args.of.outputs)
        v[j] = with_adapter<kAdapterRank>(args.adapter, row, static_cast<int>(kUnit * i) + j, j % kUnit, kUnit, v[j]);
  });
}
