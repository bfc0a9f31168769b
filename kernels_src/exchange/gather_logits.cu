// logits[m, first_r + n] = part_r[m, n] for every rank r. Thread t of the grid: values t, t + all threads, ... of a row
// and its part, taken as one sequence.
#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/exchange/gather_logits.h"

NODEWRIGHT_KERNEL(gather_logits, GatherLogits, kGatherLogitsThreads) {
  constexpr int kTeam = static_cast<int>(kRanks);
  release_dependents();
  wait_for_inputs();
  const uint32_t epoch = epoch_of(args.exchange);
  const auto first_of = [&](int64_t rank) { return args.vocab * rank / kTeam; };
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGatherLogitsThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kGatherLogitsThreads;
  const int64_t live = args.n_live.data[0], values = live * args.most;
  // Calls f(row, logit of the rank's part) for those of this thread that `rank` has.
  const auto for_each_of = [&](int64_t rank, auto f) {
    const int64_t count = first_of(rank + 1) - first_of(rank);
    for (int64_t i = first; i < values; i += step) {
      const int64_t row = i / args.most, n = i - row * args.most;
      if (n < count) f(row, n, i);
    }
  };
  const int64_t own = args.exchange.rank;
  for_each_of(own, [&](int64_t row, int64_t n, int64_t i) {
    const float value = args.part.data[row * args.part_stride + n];
    send<kTeam>(args.exchange, i, value, epoch);
    args.logits.data[row * args.logits_stride + first_of(own) + n] = value;
  });
  for_each_peer<kTeam>(args.exchange, [&](int rank, Packet*, const Packet* from) {
    for_each_of(rank, [&](int64_t row, int64_t n, int64_t i) {
      args.logits.data[row * args.logits_stride + first_of(rank) + n] =
          take(from + i, look(from + i), epoch, {args.exchange.aborted.data, args.exchange.seen.data});
    });
  });
}
