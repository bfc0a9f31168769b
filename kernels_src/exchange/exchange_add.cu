// residual[m, n] += sum over ranks r of (y_r[m, n] + bias_r[n]) * kScale, in the order of the ranks, or sum[m, n] = it.
// With kChosen sum_j weights[m, j] * y_r[m, j, n], in the order of j, stands for y_r[m, n].
// Blocks: exchange/exchanged_sums.cuh.
#include "kernels_src/exchange/exchanged_sums.cuh"

NODEWRIGHT_KERNEL(exchange_add, ExchangeAdd, ::nodewright::kThreadsOfSums) {
  exchange_and_add(args, [](int64_t, int64_t, float value) { return value; });
}
