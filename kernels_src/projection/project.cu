// y[m, n] = sum_k x[m, k] * W[n, k] + bias[n]. Block (b, t): outputs range b, rows t * kTile .. + kTile - 1.
#include "kernels_src/projection/matvec.cuh"
#include "kernels_src/projection/project.h"

NODEWRIGHT_KERNEL(project, Project, kThreads) {
  const auto nothing = [](int64_t, int64_t, int, int) {};
  project_rows(args, nothing, [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * kTile; i += static_cast<int>(kThreads)) {
      const auto [r, m] = sum_place(i, rows);
      if (m < live) args.y.data[(first_row + m) * args.y_stride + segment + r] = biased(args, segment + r, sum(r, m));
    }
  });
}
