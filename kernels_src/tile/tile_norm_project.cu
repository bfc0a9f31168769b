// y[m, n] = sum_k norm(x[m])[k] * W[n, k] + bias[n] on tensor cores, norm(x) rounded to bf16, an RMS norm's before its
// scale; norm_project in tiles. Blocks: product/tiles/tile_stream.cuh.
#include "kernels_src/product/tiles/tile_normed_rows.cuh"
#include "kernels_src/projection/norm_project.h"
#include "kernels_src/sampling/best_token.cuh"

namespace nodewright {

NODEWRIGHT_DEVICE bool is_stored(const NormProject& args, int m) {
  return args.keeps_all.count == 0 || args.keeps_all.data[0] != 0 || args.temperature.data[m] >= kLeastTemperature;
}

}  // namespace nodewright

NODEWRIGHT_KERNEL_OF(tile_norm_project, NormProject, kThreads, kBlocksOfSm) {
  const bool keeps_best = args.best.count > 0;
  ScoredToken best[kOwned];  // a thread's j-th outputs are of one row of x, in every tile
  bool stores[kOwned];
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int j = 0; j < kOwned; ++j) best[j] = ScoredToken{-INFINITY, -1}, stores[j] = true;
  PairTerms terms;
  const auto range_end = [&](int part) {
    if (!keeps_best) return;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < kOwned; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * static_cast<int>(kThreads),
                m = first_row_of_group() + i / kHalfTile;
      if (i >= kPairsOfTile) return;  // whole warps
      bool has_nan = best[j].token == kNotANumber;
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int offset = kHalfTile / 2; offset > 0; offset /= 2) {
        const ScoredToken other{__shfl_xor_sync(0xffffffffu, best[j].score, offset),
                                __shfl_xor_sync(0xffffffffu, best[j].token, offset)};
        has_nan |= __shfl_xor_sync(0xffffffffu, has_nan ? 1 : 0, offset) != 0;
        best[j] = better(best[j], other);
      }
      if (i % kHalfTile == 0 && is_of_block(i) && m < args.n_live.data[0])
        args.best.data[m * parts_of_row() + part] = ScoredToken{best[j].score, has_nan ? -1 : best[j].token};
      if constexpr (kGrouped) best[j] = ScoredToken{-INFINITY, -1};
    }
  };
  tile_project_normed(
      args, BlockRanges(args.w.outputs, 1), [&](int j, int n, int, int) { terms.request(args.w, j, n); },
      [&](int j, int n, int of_group, float first, float second, bool is_last) {
        const int m = first_row_of_group() + of_group;
        terms.end(j, first, second);
        first = capped_by<kCap>(scaled_by<kScale>(first)), second = capped_by<kCap>(scaled_by<kScale>(second));
        float* y = args.to.y.data + m * args.to.y_stride + n;
        if (keeps_best && best[j].token == -1) stores[j] = is_stored(args, m);  // the thread's first outputs of the row
        if (stores[j]) y[0] = first;
        if (keeps_best) keep_best(best[j], first, n);
        if (is_last) return;
        if (stores[j]) y[1] = second;
        if (keeps_best) keep_best(best[j], second, n + 1);
      },
      range_end);
  end_only_range(range_end);
}
