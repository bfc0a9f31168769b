// residual[m, n] += sum over ranks r of (sum_k x_r[m, k] * W_r[n, k] + bias_r[n]) * kScale, in the order of the ranks.
// Without kAdds y is that sum alone. Block (b, t): outputs range b, rows t * kTile .. + kTile - 1. Of each segment of
// its outputs a block sends all sums before it takes any; block (b, t) of a rank waits for the others' (b, t) alone,
// which go through the same segments.
#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/projection/matvec.cuh"
#include "kernels_src/projection/project_exchange.h"

NODEWRIGHT_KERNEL(project_exchange, ProjectExchange, kThreads) {
  constexpr int kTeam = static_cast<int>(kRanks);
  const int own = static_cast<int>(threadIdx.x);
  // What the end needs beside the sums comes while the weights do: the epoch, and of one row this thread's element of
  // the first segment, mostly the only one. Among more than two ranks there are no registers for them.
  constexpr bool kEarly = kTeam == 2, kComesWithX = kEarly && kAdds != 0 && kTile == 1;
  uint32_t epoch = 0;
  float first = 0.0f;
  bool has_first = kComesWithX;
  const auto before = [&](int64_t first_row, int64_t live, int segment, int rows) {
    if (kEarly) epoch = epoch_of(args.exchange);
    if (kComesWithX && own < rows && live > 0)
      first = args.residual.data[first_row * args.residual_stride + segment + own];
  };
  project_rows(args, before, [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
    if (!kEarly) epoch = epoch_of(args.exchange);
    // The same bits go to the other ranks and into this one's sum.
    const auto for_each_sum = [&](auto f) {
      for (int i = own; i < rows * kTile; i += static_cast<int>(kThreads)) {
        const auto [r, m] = sum_place(i, rows);
        if (m >= live) continue;
        const int output = segment + r;
        const int64_t row = first_row + m;
        f(i, row * args.outputs + output, row * args.residual_stride + output,
          scaled_by<kScale>(biased(args, output, sum(r, m))));
      }
    };
    for_each_sum([&](int, int64_t at, int64_t, float mine) { send<kTeam>(args.exchange, at, mine, epoch); });
    for_each_sum([&](int i, int64_t at, int64_t to, float mine) {
      const float sum = take_sum<kTeam>(args.exchange, at, mine, epoch);
      if constexpr (kAdds != 0)
        args.residual.data[to] = __fadd_rn(has_first && i == own ? first : args.residual.data[to], sum);
      else
        args.y.data[to] = sum;
    });
    has_first = false;
  });
}
