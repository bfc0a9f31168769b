// y[m, i] = silu(g) * u, g = h[m] . W[2i], u = h[m] . W[2i + 1], h = rms_norm(x). Block (b, t): a range of pairs, kTile
// rows.
#include "kernels_src/device/matvec.cuh"
#include "kernels_src/norm_gate_up.h"

NODEWRIGHT_KERNEL(norm_gate_up, NormGateUp, kThreads) {
  static_assert(kBatch % 2 == 0, "a gate row and its up row end in the same segment");
  project_normed(args, 2, [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
    const int pairs = rows / 2;
    for (int i = static_cast<int>(threadIdx.x); i < pairs * kTile; i += static_cast<int>(kThreads)) {
      const int r = i % pairs, m = i / pairs;
      if (m >= live) continue;
      const float gate = sum(2 * r, m), up = sum(2 * r + 1, m);
      args.y.data[(first_row + m) * args.y_stride + segment / 2 + r] = to_bf16(gate / (1.0f + expf(-gate)) * up);
    }
  });
}
