// A draw from a row without top-k. What is drawn from all tokens is what is drawn from those that top-p keeps, if it is
// one of them, as what lies above it says; otherwise it is drawn again from those above it.
#pragma once

#include "kernels_src/sampling/sampled_row.cuh"

namespace nodewright {

// The best of the block's part, of each thread: of what min-p keeps, of logits above `pivot`, and of what reaches
// `least`. A warp looks at the noise of four tokens only where a bound of it, -log of the smallest word, may reach the
// warp's best: after the first few, seldom.
NODEWRIGHT_DEVICE ScoredToken draw_above(const SampledRow& row, float least, float pivot) {
  constexpr float kMostNoise = 23.0f, kRounding = 0.001f;
  ScoredToken best{-INFINITY, -1};
  float reached = -INFINITY;
  const NoiseState noise = *row.noise;
  for_each_quad<true>(row.logits, row.count, [&](float4 quad, int i, int) {
    const float largest = largest_of(quad), x = row.distance(largest);
    const uint32_t token = static_cast<uint32_t>(row.first + i);
    bool may = largest >= least && largest > pivot && x + kMostNoise >= reached;
    uint4 words{};
    if (may) {
      words = noise_words(noise.seed, noise.output, token / 4);
      const uint32_t lowest = min(min(words.x, words.y), min(words.z, words.w));
      may = x + (kRounding - __logf(static_cast<float>(lowest) * (1.0f / 4294967296.0f))) >= reached;
    }
    if (!__any_sync(0xffffffffu, may ? 1 : 0)) return;
    if (may) {
      NODEWRIGHT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float v = logit_at(quad, e), score = row.distance(v) + gumbel_noise(word_at(words, e));
        if (v >= least && v > pivot && score > best.score) best = ScoredToken{score, static_cast<int32_t>(token) + e};
      }
    }
    reached = best.score;
    NODEWRIGHT_NO_UNROLL
    for (int offset = 16; offset > 0; offset /= 2)
      reached = fmaxf(reached, __shfl_xor_sync(0xffffffffu, reached, offset));
  });
  return best;
}

// What the elements that min-p keeps weigh, of a thread, a warp, a block or a row: all, and those above a logit.
struct Masses {
  unsigned long long all, above;

  NODEWRIGHT_CALLED static Masses of_warp(Masses here) {
    NODEWRIGHT_NO_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
      here.all += __shfl_xor_sync(0xffffffffu, here.all, offset);
      here.above += __shfl_xor_sync(0xffffffffu, here.above, offset);
    }
    return here;
  }
};
NODEWRIGHT_DEVICE Masses masses_above(const SampledRow& row, float pivot) {
  Masses masses{0, 0};
  const float least = fmaxf(row.least, row.top - 23.0f * row.temperature);  // exp(-23) is below 2^-32
  for_each_quad(row.logits, row.count, [&](float4 quad, int, int) {
    if (largest_of(quad) < least) return;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int e = 0; e < 4; ++e) {
      const float v = logit_at(quad, e);
      const uint64_t weight = v >= row.least ? weight_of(row.distance(v)) : 0;
      masses.all += weight;
      if (v > pivot) masses.above += weight;
    }
  });
  return masses;
}

// In shared memory, at the same places in every block.
struct PivotPlace {
  ScoredToken bests[kMostBlocksOfRow];
  Masses masses[kMostBlocksOfRow], of_warps[kLogitRowThreads / 32];
};

// The row's best in the first block. No token: the row has none that comes up to its top.
template <int kBlocks>
NODEWRIGHT_DEVICE ScoredToken draw_by_pivots(const SampledRow& row, int vocab, PivotPlace* shared,
                                             ScoredToken* scratch) {
  constexpr int kWarps = static_cast<int>(kLogitRowThreads / 32);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int part = kBlocks > 1 ? cluster_rank() : 0;
  float least = row.least;
  // All that lies lower, be it `vocab` elements, weighs less than top-p leaves out beside the largest alone.
  if (row.p < 1.0f)
    least = fmaxf(least, row.top - 1.001f * row.temperature *
                                       fmaxf(__logf(static_cast<float>(vocab)) - __logf((1.0f - row.p) * 0.99f), 0.0f));
  ScoredToken best;
  NODEWRIGHT_NO_UNROLL
  for (float pivot = -INFINITY;;) {
    best = best_of_block<kWarps>(draw_above(row, least, pivot), scratch);
    if constexpr (kBlocks > 1) {
      if (thread < kBlocks) store_to_block(thread, shared->bests + part, best);
      sync_blocks<kBlocks>();
      best = best_of_warp(lane < kBlocks ? shared->bests[lane] : ScoredToken{-INFINITY, -1});
    }
    if (!(row.p < 1.0f) || best.token < 0) return best;
    pivot = row.logits[best.token - row.first];
    const Masses of_warp = Masses::of_warp(masses_above(row, pivot));
    if (lane == 0) shared->of_warps[warp] = of_warp;
    __syncthreads();
    Masses all = Masses::of_warp(lane < kWarps ? shared->of_warps[lane] : Masses{0, 0});
    if constexpr (kBlocks > 1) {
      if (thread < kBlocks) store_to_block(thread, shared->masses + part, all);
      sync_blocks<kBlocks>();
      all = Masses::of_warp(lane < kBlocks ? shared->masses[lane] : Masses{0, 0});
    }
    if (all.above < share_of(all.all, row.p)) return best;
  }
}

}  // namespace nodewright
