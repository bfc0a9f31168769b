// y[i] = sum over ranks r of x_r[i], in the order of the ranks. Block b, thread t: elements b * 256 + t, and on by the
// grid's threads.
#include "kernels_src/exchange/all_reduce.h"
#include "kernels_src/exchange/exchange.cuh"

NODEWRIGHT_KERNEL(all_reduce, AllReduce, kAllReduceThreads) {
  constexpr int kTeam = static_cast<int>(kRanks);
  release_dependents();
  wait_for_inputs();
  const uint32_t epoch = epoch_of(args.exchange);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kAllReduceThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kAllReduceThreads, count = static_cast<int64_t>(args.x.count);
  for (int64_t i = first; i < count; i += step) send<kTeam>(args.exchange, i, args.x.data[i], epoch);
  for (int64_t i = first; i < count; i += step)
    args.y.data[i] = take_sum<kTeam>(args.exchange, i, args.x.data[i], epoch);
}
