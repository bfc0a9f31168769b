// residual[m, n] += sum_k x[m, k] * W[n, k] + bias[n]. Block (b, t): outputs range b, rows t * kTile .. + kTile - 1.
#include "kernels_src/device/matvec.cuh"
#include "kernels_src/project_add.h"

NODEWRIGHT_KERNEL(project_add, ProjectAdd, kThreads) {
  const int first = static_cast<int>(threadIdx.x);
  const auto row_of = [](int i, int rows) { return kTile == 1 ? 0 : i / rows; };
  const auto at = [&](int64_t first_row, int segment, int rows, int i) {
    const int m = row_of(i, rows);
    return args.residual.data + (first_row + m) * args.residual_stride + segment + i - m * rows;
  };
  // This thread's first element of the first segment, mostly the only one, comes with x: requested behind the sums, it
  // would keep the next kernel waiting.
  float requested = 0.0f;
  bool is_requested = true;
  project_rows(
      args,
      [&](int64_t first_row, int64_t live, int segment, int rows) {
        if (first < rows * kTile && row_of(first, rows) < live) requested = *at(first_row, segment, rows, first);
      },
      [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
        for (int i = first; i < rows * kTile; i += static_cast<int>(kThreads)) {
          const int m = row_of(i, rows), r = i - m * rows;
          if (m >= live) continue;
          float* const to = at(first_row, segment, rows, i);
          *to = (is_requested && i == first ? requested : *to) + biased(args, segment + r, sum(r, m));
        }
        is_requested = false;
      });
}
