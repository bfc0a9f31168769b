// logits[m, first_r + n] = gathered[r, m, n] for every rank r. Thread t of the grid: values t, t + all threads, ...
#include "kernels_src/collective/gathered_logits.h"
#include "kernels_src/device/numeric.cuh"

NODEWRIGHT_KERNEL(gathered_logits, GatheredLogits, kGatheredLogitsThreads) {
  release_dependents();
  wait_for_inputs();
  const auto first_of = [&](int64_t rank) { return args.vocab * rank / kRanks; };
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGatheredLogitsThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kGatheredLogitsThreads;
  const int64_t live = args.n_live.data[0];
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const int64_t begin = first_of(rank), count = first_of(rank + 1) - begin;
    const float* const part = args.gathered.data + rank * args.rows * args.part_stride;
    for (int64_t i = first; i < live * count; i += step) {
      const int64_t row = i / count, n = i - row * count;
      args.logits.data[row * args.logits_stride + begin + n] = part[row * args.part_stride + n];
    }
    if constexpr (kBest != 0)
      for (int64_t i = first; i < live * args.parts; i += step) {
        const int64_t row = i / args.parts, j = i - row * args.parts;
        ScoredToken best = args.best.data[(rank * args.rows + row) * args.parts + j];
        if (best.token >= 0) best.token += static_cast<int32_t>(begin);
        args.all_best.data[(row * kRanks + rank) * args.parts + j] = best;
      }
  }
}
