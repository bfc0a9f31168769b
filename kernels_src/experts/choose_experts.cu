// experts[m, j] = the expert with the j-th largest of logits[m, :], weights[m, j] = softmax(logits[m, :]) of it, or
// with kNormalised the softmax over the chosen. One warp a row; lane l: experts l, l + 32, ... A NaN is chosen last.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/experts/choose_experts.h"

namespace nodewright {

constexpr int kOfLane = static_cast<int>((kExperts + 31) / 32);

// Smaller for a larger logit.
NODEWRIGHT_DEVICE int rank_of(float v) {
  const auto bits = static_cast<int>(float_to_bits(v == v ? v : -INFINITY));
  return ~(bits ^ ((bits >> 31) & 0x7fffffff));
}
NODEWRIGHT_DEVICE float logit_of(int rank) {
  const int bits = ~rank;
  return bits_to_float(static_cast<uint32_t>(bits ^ ((bits >> 31) & 0x7fffffff)));
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(choose_experts, ChooseExperts, kChooseExpertsThreads) {
  constexpr int kNone = 0x7fffffff;
  wait_for_inputs();
  release_behind_wait();  // not before: what the kernel of the experts norms is settled for it
  const int lane = lane_of_warp();
  const int64_t row = blockIdx.x * (kChooseExpertsThreads / 32) + warp_of_block();
  if (row >= args.n_live.data[0]) return;
  const float* const logits = args.logits.data + row * kExperts;
  int ranks[kOfLane];
  NODEWRIGHT_UNROLL
  for (int i = 0; i < kOfLane; ++i) {
    const int expert = i * 32 + lane;
    ranks[i] = expert < kExperts ? rank_of(logits[expert]) : kNone;
  }
  float largest = 0.0f, sum = 0.0f, mine = 0.0f;  // mine: of lane j, the exponential of the j-th
  for (int j = 0; j < kChosen; ++j) {
    int best = kNone;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kOfLane; ++i) best = min(best, ranks[i]);
    best = warp_min(best);
    int expert = kNone;
    NODEWRIGHT_UNROLL
    for (int i = kOfLane - 1; i >= 0; --i)
      if (ranks[i] == best && i * 32 + lane < kExperts) expert = i * 32 + lane;
    expert = warp_min(expert);
    if (j == 0) {
      largest = logit_of(best);
      if constexpr (kNormalised == 0) {
        NODEWRIGHT_UNROLL
        for (int i = 0; i < kOfLane; ++i)
          if (i * 32 + lane < kExperts) sum += expf(logit_of(ranks[i]) - largest);
        sum = warp_sum(sum);
      }
    }
    const float part = expf(logit_of(best) - largest);
    if constexpr (kNormalised != 0) sum += part;
    if (lane == j % 32) mine = part;
    if (lane == 0) args.experts.data[row * kChosen + j] = expert;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kOfLane; ++i)
      if (i * 32 + lane == expert) ranks[i] = kNone;
  }
  if (lane < kChosen) args.weights.data[row * kChosen + lane] = mine / sum;
}
