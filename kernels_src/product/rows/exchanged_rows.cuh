// A product by rows whose sums cross the devices (project_exchange.cu, adapted_project_exchange.cu). A block sends all
// sums of a segment of its outputs before it takes any; block (b, t) of a rank waits for the others' (b, t) alone,
// which go through the same segments.
#pragma once

#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/product/end/end.cuh"
#include "kernels_src/product/rows/matvec.cuh"

namespace nodewright {

// `args`: those of ProjectExchange, at least. Own: an end whose own() gives the rank's sum of an output, the same bits
// whenever it is called.
template <class Own, class Args>
NODEWRIGHT_DEVICE void project_and_exchange(const Args& args) {
  constexpr int kTeam = static_cast<int>(kRanks);
  const int thread = static_cast<int>(threadIdx.x);
  // What the end needs beside the sums comes while the weights do: the epoch, and of one row this thread's element of
  // the first segment, mostly the only one. Among more than two ranks there are no registers for them.
  constexpr bool kEarly = kTeam == 2, kComesWithX = kEarly && kAdds != 0 && kTile == 1;
  uint32_t epoch = 0;
  float first = 0.0f;
  bool has_first = kComesWithX;
  const auto before = [&](int64_t first_row, int64_t live, int segment, int rows) {
    if (kEarly) epoch = epoch_of(args.exchange);
    if (kComesWithX && thread < rows && live > 0)
      first = args.residual.data[first_row * args.residual_stride + segment + thread];
  };
  project_rows(args, before, [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
    if (!kEarly) epoch = epoch_of(args.exchange);
    // The same bits go to the other ranks and into this one's sum.
    const auto for_each_sum = [&](auto f) {
      for (int i = thread; i < rows * kTile; i += static_cast<int>(kThreads)) {
        const auto [r, m] = sum_place(i, rows);
        if (m >= live) continue;
        const int output = segment + r;
        const int64_t row = first_row + m;
        f(i, row * args.outputs + output, row * args.residual_stride + output,
          scaled_by<kScale>(Own::own(args, row, output, 0, biased(args, output, sum(r, m)))));
      }
    };
    for_each_sum([&](int, int64_t at, int64_t, float mine) { send<kTeam>(args.exchange, at, mine, epoch); });
    for_each_sum([&](int i, int64_t at, int64_t to, float mine) {
      const float sum = take_sum<kTeam>(args.exchange, at, mine, epoch);
      if constexpr (kAdds != 0)
        args.residual.data[to] = __fadd_rn(has_first && i == thread ? first : args.residual.data[to], sum);
      else
        args.y.data[to] = sum;
    });
    has_first = false;
  });
}

}  // namespace nodewright
