// norm_gate_up with what each row's adapter adds to g and u. Block (b, t): a range of elements, kTile rows.
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/adapters/adapter_delta.cuh"
#include "kernels_src/projection/activation.cuh"
#include "kernels_src/projection/normed_rows.cuh"

NODEWRIGHT_KERNEL(adapted_gate_up, AdaptedGateUp, kThreads) {
  constexpr int kUnit = kGated != 0 ? 2 : 1;
  static_assert(kBatch % kUnit == 0, "a gate row and its up row end in the same segment");
  project_normed(args, kUnit, [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
    const int elements = rows / kUnit;
    const auto product = [&](int r, int m) {
      const int output = segment + r;
      return adapted<kRank>(args.adapter, first_row + m, output, output % kUnit, kUnit,
                            biased(args, output, sum(r, m)));
    };
    for (int i = static_cast<int>(threadIdx.x); i < elements * kTile; i += static_cast<int>(kThreads)) {
      const auto [r, m] = sum_place(i, elements);
      if (m >= live) continue;
      float value = activate(product(kUnit * r, m));
      if constexpr (kGated != 0) value *= product(kUnit * r + 1, m);
      args.y.data[(first_row + m) * args.y_stride + segment / kUnit + r] = to_bf16(value);
    }
  });
}
