// y[m, n] = sum_k norm(x[m])[k] * W[n, k] + bias[n], fp32 out. Block (b, t): outputs range b, rows t * kTile .. + kTile
// - 1.
#include "kernels_src/product/rows/normed_rows.cuh"
#include "kernels_src/projection/norm_project.h"
#include "kernels_src/sampling/best_token.cuh"

NODEWRIGHT_KERNEL(norm_project, NormProject, kThreads) {
  const bool keeps_best = kSingleRow != 0 && args.best.count > 0;
  auto* best = reinterpret_cast<ScoredToken*>(shared_memory() + 4 * (kSegment + 1) * kTile * kWarps);  // [kThreads]
  if (keeps_best) best[threadIdx.x] = ScoredToken{-INFINITY, -1};
  const FirstScales<1> scales(args.w);
  project_normed(args, 1, [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * kTile; i += static_cast<int>(kThreads)) {
      const auto [r, m] = sum_place(i, rows);
      if (m >= live) continue;
      const float v = capped_by<kCap>(scaled_by<kScale>(scales.ended(args.w, segment + r, 0, sum(r, m))));
      args.to.y.data[(first_row + m) * args.to.y_stride + segment + r] = v;
      if (keeps_best) keep_best(best[threadIdx.x], v, segment + r);
    }
  });
  if (!keeps_best) return;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  ScoredToken mine{-INFINITY, -1};
  bool has_nan = false;
  for (int i = static_cast<int>(threadIdx.x); i < kThreads; i += 32) {
    has_nan |= best[i].token == kNotANumber;
    mine = better(mine, best[i]);
  }
  mine = warp_best(mine);
  has_nan = warp_max(has_nan ? 1.0f : 0.0f) > 0.0f;
  if (threadIdx.x == 0) args.best.data[blockIdx.x] = ScoredToken{mine.score, has_nan ? -1 : mine.token};
}
