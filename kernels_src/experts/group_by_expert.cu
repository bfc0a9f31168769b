// pairs = the pairs of live rows in the order of their experts; jobs = what tiles multiply. One block. Each warp counts
// the pairs of a range of its own, so that a pair's place is known from the ranges before it.
#include "kernels_src/device/dialect.cuh"
#include "kernels_src/experts/group_by_expert.h"

namespace nodewright {

constexpr int kWarps = static_cast<int>(kThreads / 32), kAll = static_cast<int>(kExperts);
constexpr int kOfLane = (kAll + 31) / 32;  // experts of a lane, one after the other

// The sum over the lanes below.
NODEWRIGHT_DEVICE int sum_below(int v) {
  int sum = v;
  NODEWRIGHT_UNROLL
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, static_cast<unsigned>(offset));
    if (lane_of_warp() >= offset) sum += other;
  }
  return sum - v;
}

// Where each expert's pairs begin, and the jobs. `counts`: of all pairs, becomes the places. One warp.
template <class Args>
NODEWRIGHT_DEVICE void place_experts(const Args& args, int* counts) {
  int pairs = 0, jobs = 0;
  for (int i = 0; i < kOfLane; ++i) {
    const int expert = lane_of_warp() * kOfLane + i, count = expert < kAll ? counts[expert] : 0;
    pairs += count;
    jobs += (count + static_cast<int>(kJobRows) - 1) / static_cast<int>(kJobRows);
  }
  int first = sum_below(pairs), job = sum_below(jobs);
  for (int i = 0; i < kOfLane; ++i) {
    const int expert = lane_of_warp() * kOfLane + i, count = expert < kAll ? counts[expert] : 0;
    if (expert < kAll) counts[expert] = first;
    for (int done = 0; done < count; done += static_cast<int>(kJobRows), ++job)
      args.jobs.data[job] = ExpertJob{expert, first + done, min(count - done, static_cast<int>(kJobRows))};
    first += count;
  }
  if (lane_of_warp() == 31) args.n_jobs.data[0] = job;
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(group_by_expert, GroupByExpert, kThreads) {
  auto* const places = reinterpret_cast<int*>(shared_memory());  // [experts], then [warps][experts] and a word a thread
  int* const of_warp = places + kAll * (1 + warp_of_block());
  int* const ids = places + kAll * (1 + kWarps) + warp_of_block() * 32;
  for (int i = static_cast<int>(threadIdx.x); i < kAll * (1 + kWarps); i += static_cast<int>(kThreads)) places[i] = 0;
  release_dependents();
  wait_for_inputs();
  __syncthreads();
  const int pairs = args.n_live.data[0] * static_cast<int>(kChosen),
            share = (pairs + kWarps * 32 - 1) / (kWarps * 32) * 32;
  const int first = min(pairs, warp_of_block() * share), last = min(pairs, first + share);
  for (int pair = first + lane_of_warp(); pair < last; pair += 32) atomicAdd(of_warp + args.experts.data[pair], 1);
  __syncthreads();
  for (int expert = static_cast<int>(threadIdx.x); expert < kAll; expert += static_cast<int>(kThreads)) {
    int count = 0;
    for (int w = 0; w < kWarps; ++w) {
      int& of_range = places[kAll * (1 + w) + expert];
      const int before = count;
      count += of_range;
      of_range = before;
    }
    places[expert] = count;
  }
  __syncthreads();
  if (warp_of_block() == 0) place_experts(args, places);
  __syncthreads();
  for (int at = first; at < last; at += 32) {
    const int pair = at + lane_of_warp(), expert = pair < last ? args.experts.data[pair] : -1;
    ids[lane_of_warp()] = expert;
    __syncwarp();
    int below = 0, same = 0;
    for (int lane = 0; lane < 32; ++lane) {
      below += lane < lane_of_warp() && ids[lane] == expert;
      same += ids[lane] == expert;
    }
    if (expert >= 0) args.pairs.data[places[expert] + of_warp[expert] + below] = pair;
    __syncwarp();
    if (expert >= 0 && below == same - 1) of_warp[expert] += same;
    __syncwarp();
  }
}
