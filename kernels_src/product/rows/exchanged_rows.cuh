// A product by rows whose results are sums over the ranks of a device group (project_exchange.cu,
// adapted_project_exchange.cu). A block sends its sums of a whole segment of outputs before it receives any. Block
// (b, t) of a rank waits only for blocks (b, t) of the other ranks, which go through the same segments.
#pragma once

#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/product/end/end.cuh"
#include "kernels_src/product/rows/matvec.cuh"

namespace nodewright {

// Args: ProjectExchange. Of: an end whose adjusted() returns what this rank adds to an output, the same bits at each
// call; `more`: what it takes beside the sum.
template <class Of, class Args, class... More>
NODEWRIGHT_DEVICE void project_and_exchange(const Args& args, const More&... more) {
  constexpr int kTeam = static_cast<int>(kRanks);
  const int thread = static_cast<int>(threadIdx.x);
  const FirstScales<1> scales(args.w);
  // Loaded while weights are being loaded: the epoch and, with one row of x, this thread's element of the residual in
  // the first segment, mostly the only one. With more than two ranks there are no registers for them.
  constexpr bool kEarly = kTeam == 2, kComesWithX = kEarly && kAdds != 0 && kTile == 1;
  uint32_t epoch = 0;
  float first = 0.0f;
  bool has_first = kComesWithX;
  const auto before = [&](int64_t first_row, int64_t live, int segment, int rows) {
    if (kEarly) epoch = epoch_of(args.exchange);
    if (kComesWithX && thread < rows && live > 0)
      first = args.to.residual.data[first_row * args.to.stride + segment + thread];
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
        f(i, row * args.w.outputs + output, row * args.to.stride + output,
          scaled_by<kScale>(Of::adjusted(row, output, 0, scales.ended(args.w, output, 0, sum(r, m)), more...)));
      }
    };
    for_each_sum([&](int, int64_t at, int64_t, float mine) { send<kTeam>(args.exchange, at, mine, epoch); });
    for_each_sum([&](int i, int64_t at, int64_t to, float mine) {
      const float sum = take_sum<kTeam>(args.exchange, at, mine, epoch);
      if constexpr (kAdds != 0)
        args.to.residual.data[to] = __fadd_rn(has_first && i == thread ? first : args.to.residual.data[to], sum);
      else
        args.to.sum.data[to] = sum;
    });
    has_first = false;
  });
}

}  // namespace nodewright
