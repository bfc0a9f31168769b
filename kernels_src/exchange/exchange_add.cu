// residual[m, n] += sum over ranks r of (y_r[m, n] + bias_r[n]) * kScale, in the order of the ranks, or sum[m, n] = it.
// Block (b, c): columns b * 256 .. + 255 of rows c, c + gridDim.y, ...
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/exchange/exchange_add.h"

NODEWRIGHT_KERNEL(exchange_add, ExchangeAdd, kExchangeAddThreads) {
  constexpr int kTeam = static_cast<int>(kRanks);
  release_dependents();
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kExchangeAddThreads + threadIdx.x;
  const bool has = col < args.cols;
  float bias = 0.0f, gain = 0.0f;
  if constexpr (kBias != 0)
    if (has) bias = to_float(args.bias.data[col]);
  if constexpr (kLeavesGained != 0)
    if (has) gain = to_float(args.next.gain.data[col]);
  wait_for_inputs();
  const uint32_t epoch = epoch_of(args.exchange);
  const int64_t live = args.n_live.data[0];
  const auto mine = [&](int64_t row) { return scaled_by<kScale>(args.y.data[row * args.stride + col] + bias); };
  if (has)
    for (int64_t row = blockIdx.y; row < live; row += gridDim.y)
      send<kTeam>(args.exchange, row * args.cols + col, mine(row), epoch);
  for (int64_t row = blockIdx.y; row < live; row += gridDim.y) {
    float sum = 0.0f;
    if (has) {
      sum = take_sum<kTeam>(args.exchange, row * args.cols + col, mine(row), epoch);
      if constexpr (kAdds != 0) {
        float* const to = args.residual.data + row * args.stride + col;
        sum = __fadd_rn(*to, sum);
        *to = sum;
      } else {
        args.sum.data[row * args.stride + col] = sum;
      }
    }
    if constexpr (kLeavesGained != 0) {
      if (has) args.next.gained.data[row * args.cols + col] = to_bf16(sum * gain);
      const float squares = block_sum(sum * sum, reinterpret_cast<float*>(shared_memory()));
      const int64_t rows = (static_cast<int64_t>(args.next.gained.count) / args.cols + 7) / 8 * 8;
      if (threadIdx.x == 0) args.next.squares.data[blockIdx.x * rows + row] = squares;
    }
  }
}
