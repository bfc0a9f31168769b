// y[m, i] = f(g) * u, g = h[m] . W[2i], u = h[m] . W[2i + 1], h = norm(x); with kGated 0 y[m, i] = f(h[m] . W[i]).
// Biases, if any, belong to the products. Block (b, t): a range of elements, kTile rows. f: kActivation.
#include "kernels_src/projection/activation.cuh"
#include "kernels_src/projection/norm_gate_up.h"
#include "kernels_src/projection/normed_rows.cuh"

NODEWRIGHT_KERNEL(norm_gate_up, NormGateUp, kThreads) {
  constexpr int kUnit = kGated != 0 ? 2 : 1;
  static_assert(kBatch % kUnit == 0, "a gate row and its up row end in the same segment");
  project_normed(args, kUnit, [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
    const int elements = rows / kUnit;
    const auto product = [&](int r, int m) { return biased(args, segment + r, sum(r, m)); };
    for (int i = static_cast<int>(threadIdx.x); i < elements * kTile; i += static_cast<int>(kThreads)) {
      const auto [r, m] = sum_place(i, elements);
      if (m >= live) continue;
      float value = activate(product(kUnit * r, m));
      if constexpr (kGated != 0) value *= product(kUnit * r + 1, m);
      args.y.data[(first_row + m) * args.y_stride + segment / kUnit + r] = to_bf16(value);
    }
  });
}
