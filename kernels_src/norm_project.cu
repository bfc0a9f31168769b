// y[m, n] = sum_k norm(x[m])[k] * W[n, k] + bias[n], fp32 out. Block (b, t): outputs range b, rows t * kTile .. + kTile
// - 1.
#include "kernels_src/device/best_token.cuh"
#include "kernels_src/device/normed_rows.cuh"
#include "kernels_src/norm_project.h"

NODEWRIGHT_KERNEL(norm_project, NormProject, kThreads) {
  ScoredToken best{-INFINITY, -1};
  bool has_nan = false;
  project_normed(args, 1, [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * kTile; i += static_cast<int>(kThreads)) {
      const int r = i % rows, m = i / rows;
      if (m >= live) continue;
      const float v = biased(args, segment + r, sum(r, m));
      args.y.data[(first_row + m) * args.y_stride + segment + r] = v;
      if constexpr (kSingleRow != 0) {
        has_nan |= v != v;
        if (v > best.score || best.token < 0) best = ScoredToken{v, segment + r};
      }
    }
  });
  if constexpr (kSingleRow != 0) {
    if (args.best.count == 0) return;
    __syncthreads();  // the sums have been read
    has_nan = block_max(has_nan ? 1.0f : 0.0f, reinterpret_cast<float*>(shared_memory())) > 0.0f;
    best = block_best<kWarps>(best, reinterpret_cast<ScoredToken*>(shared_memory()));
    if (threadIdx.x == 0) args.best.data[blockIdx.x] = ScoredToken{best.score, has_nan ? -1 : best.token};
  }
}
