// residual[m, n] += (sum_k x[m, k] * W[n, k] + bias[n]) * kScale. Block (b, t): outputs range b, rows t * kTile .. +
// kTile - 1.
#include "kernels_src/projection/matvec.cuh"
#include "kernels_src/projection/project_add.h"

NODEWRIGHT_KERNEL(project_add, ProjectAdd, kThreads) {
  const int own = static_cast<int>(threadIdx.x);
  const auto at = [&](int64_t row, int output) { return args.residual.data + row * args.residual_stride + output; };
  // Of one row, this thread's element of the first segment, mostly the only one, comes with x: requested behind the
  // sums it would keep the next kernel waiting. Of more rows there are no registers for it.
  constexpr bool kComesWithX = kTile == 1;
  float first = 0.0f;
  bool has_first = kComesWithX;
  project_rows(
      args,
      [&](int64_t first_row, int64_t live, int segment, int rows) {
        if (kComesWithX && own < rows && live > 0) first = *at(first_row, segment + own);
      },
      [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
        for (int i = own; i < rows * kTile; i += static_cast<int>(kThreads)) {
          const auto [r, m] = sum_place(i, rows);
          if (m >= live) continue;
          float* const to = at(first_row + m, segment + r);
          *to = (has_first && i == own ? first : *to) + scaled_by<kScale>(biased(args, segment + r, sum(r, m)));
        }
        has_first = false;
      });
}
