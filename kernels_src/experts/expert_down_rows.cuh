// What the second halves of mixtures of few rows have in common: the weighted sum over a row's experts of x . W^T.
//
// Constants: those of expert_down_rows.h but kScale, and of experts/expert_rows.cuh.
#pragma once

#include "kernels_src/experts/expert_down_rows.h"
#include "kernels_src/experts/expert_halves.cuh"

namespace nodewright {

// Calls put(m, n, sum) for outputs n of row m, in one thread each, after the wait.
template <class To, class Put>
NODEWRIGHT_DEVICE void sum_expert_rows(const ExpertDownRows<To>& args, Put put) {
  constexpr int kOfBlock = static_cast<int>(kRowsOfBlock), kGroup = static_cast<int>(kRowsOfGroup);
  auto* const sums_of = reinterpret_cast<float*>(shared_memory());  // [warps][kRowsOfBlock]
  const int64_t row = blockIdx.y;
  const int first = static_cast<int>(blockIdx.x) * kOfBlock, count = min(kOfBlock, static_cast<int>(kOutputs) - first);
  const int j = warp_of_block() / static_cast<int>(kParts), groups = (count + kGroup - 1) / kGroup;
  const int64_t expert = valid_expert(load_settled(args.experts.data + row * kChosen + j));
  const int first_row = static_cast<int>(expert * kOutputs) + first;
  const Stored* const matrix = stored(args.w) + (expert * kOutputs + first) * kRowElements;
  const auto group_at = [&](int g, int& rows) {
    rows = min(kGroup, count - g * kGroup);
    return ExpertGroup{matrix + g * kGroup * kRowElements, first_row + g * kGroup};
  };
  ExpertRows<kGroup, static_cast<int>(kParts)> stream(args.w.weight.data, warp_of_block() % static_cast<int>(kParts));
  stream.start(groups, group_at);
  release_dependents();
  wait_for_inputs();
  if (kSingleRow == 0 && row >= args.n_live.data[0]) return;
  const bf16* const x_row = args.from.x.data + (row * kChosen + j) * args.from.x_stride;
  auto x = expert_x(
      stream, [x_row](int column, float(&v)[8]) { load_counted_8(x_row, column, v); },
      shared_memory() + static_cast<int>(kThreads / 32) * kOfBlock * 4, warp_of_block());
  x.stage(stream, 0, 1, [](float v) { return warp_max(v); });
  stream.run(groups, group_at, x, [&](int g, float(&sums)[kGroup]) {
    warp_sums_scattered<kGroup>(sums);
    constexpr int kLanes = 32 / kGroup;  // that hold one sum
    if (lane_of_warp() % kLanes == 0)
      sums_of[warp_of_block() * kOfBlock + g * kGroup + lane_of_warp() / kLanes] = sums[0];
  });
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(kThreads)) {
    float all = 0.0f;
    for (int e = 0; e < kChosen; ++e) {
      float of_expert = 0.0f;
      for (int part = 0; part < kParts; ++part)
        of_expert += sums_of[(e * static_cast<int>(kParts) + part) * kOfBlock + i];
      all = fmaf(args.weights.data[row * kChosen + e], of_expert, all);
    }
    put(row, first + i, all);
  }
}

}  // namespace nodewright
