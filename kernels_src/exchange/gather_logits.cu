// logits[m, first_r + n] = part_r[m, n] for every rank r. Thread t of the grid: values t, t + all threads, ... of a row
// and its part, taken as one sequence.
#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/exchange/gather_logits.h"

NODEWRIGHT_KERNEL(gather_logits, GatherLogits, kGatherLogitsThreads) {
  constexpr int kTeam = static_cast<int>(kRanks);
  release_dependents();
  wait_for_inputs();
  const uint32_t epoch = epoch_of(args.exchange);
  const AbortWords abort{args.exchange.aborted.data, args.exchange.seen.data};
  const auto first_of = [&](int64_t rank) { return args.vocab * rank / kTeam; };
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGatherLogitsThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kGatherLogitsThreads;
  const int64_t live = args.n_live.data[0], own = args.exchange.rank, bests = live * args.parts;

  // A step that chooses nothing: its ranks meet.
  if (live == 0) {
    if (first == 0) {
      send<kTeam>(args.exchange, 0, 0.0f, epoch);
      meet<kTeam>(args.exchange, 0, epoch);
    }
    return;
  }
  // Whether a choice reads more of the row than its largest logit.
  const auto is_kept = [&](int64_t row) {
    if constexpr (kBest == 0) return true;
    return args.keeps_all.data[0] != 0 || args.temperature.data[row] >= kLeastTemperature;
  };
  int64_t values = live * args.most;
  if constexpr (kBest != 0) {
    bool any = false;
    for (int64_t row = 0; row < live && !any; ++row) any = is_kept(row);
    if (!any) values = 0;
  }
  // Calls f(row, logit of the rank's part, packet) for those of this thread that `rank` has.
  const auto for_each_of = [&](int64_t rank, auto f) {
    const int64_t count = first_of(rank + 1) - first_of(rank);
    for (int64_t i = first; i < values; i += step) {
      const int64_t row = i / args.most, n = i - row * args.most;
      if (n < count && is_kept(row)) f(row, n, i);
    }
  };
  const int64_t first_best = args.rows * args.most;
  const auto place_of = [&](int64_t rank, int64_t i) {
    return i / args.parts * kTeam * args.parts + rank * args.parts + i % args.parts;
  };

  if constexpr (kBest != 0)
    for (int64_t i = first; i < bests; i += step) {
      ScoredToken best = args.best.data[i];
      if (best.token >= 0) best.token += static_cast<int32_t>(first_of(own));
      send<kTeam>(args.exchange, first_best + 2 * i, best.score, epoch);
      send<kTeam>(args.exchange, first_best + 2 * i + 1, __uint_as_float(static_cast<uint32_t>(best.token)), epoch);
      args.all_best.data[place_of(own, i)] = best;
    }
  for_each_of(own, [&](int64_t row, int64_t n, int64_t i) {
    const float value = args.part.data[row * args.part_stride + n];
    send<kTeam>(args.exchange, i, value, epoch);
    args.logits.data[row * args.logits_stride + first_of(own) + n] = value;
  });
  for_each_peer<kTeam>(args.exchange, [&](int rank, Packet*, const Packet* from) {
    if constexpr (kBest != 0)
      for (int64_t i = first; i < bests; i += step) {
        const Packet* const at = from + first_best + 2 * i;
        const Packet score = look(at), token = look(at + 1);
        const float best = take(at, score, epoch, abort);
        args.all_best.data[place_of(rank, i)] = {
            best, static_cast<int32_t>(__float_as_uint(take(at + 1, token, epoch, abort)))};
      }
    for_each_of(rank, [&](int64_t row, int64_t n, int64_t i) {
      args.logits.data[row * args.logits_stride + first_of(rank) + n] = take(from + i, look(from + i), epoch, abort);
    });
  });
}
