// The largest logit of a row, and a bound of its k-th largest. Both come from one walk over the row, or from the
// largest logits of its parts, where the head has left them.
#pragma once

#include "kernels_src/sampling/sampled_row.cuh"

namespace nodewright {

constexpr float kLeastFinite = -3.402823466e38f;

// The largest logit in each span of a thread's logits, so that few of them are read again. A span of the block's part
// is 2^log_width logits: the least power of two, and at least one step of the walk, with which kSpans are enough.
constexpr int kSpans = 8, kLogStep = 11;
static_assert(1 << kLogStep == 4 * kLogitRowThreads);
struct SpanTops {
  float* tops;  // [kSpans][kLogitRowThreads] of shared memory; a thread reads its own
  int log_width;

  NODEWRIGHT_DEVICE static SpanTops of(float* tops, int count) {
    int log_width = kLogStep;
    while ((count - 1) >> log_width >= kSpans) ++log_width;
    return {tops, log_width};
  }
  // This thread's, in the span that has the i-th logit.
  NODEWRIGHT_DEVICE float& top(int i) const {
    return tops[(i >> log_width) * static_cast<int>(kLogitRowThreads) + static_cast<int>(threadIdx.x)];
  }
};

// The largest logit of this thread's, with the first token of its four: of equals the first one. kNotANumber in place
// of the token: one is a NaN. The tops of spans are those of a row with top-k.
NODEWRIGHT_DEVICE ScoredToken best_quad(const SampledRow& row, const SpanTops& spans) {
  const int mine = static_cast<int>(threadIdx.x) * 4, width = 1 << spans.log_width;
  ScoredToken best{-INFINITY, mine < row.count ? row.first + mine : -1};
  bool has_nan = false;
  float of_span = -INFINITY;
  for_each_quad(row.logits, row.count, [&](float4 v, int i, int) {
    has_nan = has_nan || v.x != v.x || v.y != v.y || v.z != v.z || v.w != v.w;
    const float largest = largest_of(v);
    if (largest > best.score) best = ScoredToken{largest, row.first + i};
    if (row.k == 0) return;
    of_span = (i & (width - 1)) == mine ? largest : fmaxf(of_span, largest);
    spans.top(i) = of_span;
  });
  return has_nan ? ScoredToken{best.score, kNotANumber} : best;
}

// The best of this thread's parts of the row: of them, no token is a NaN.
NODEWRIGHT_DEVICE ScoredToken best_of_parts(const ScoredToken* parts, int count) {
  ScoredToken best{-INFINITY, -1};
  NODEWRIGHT_NO_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(kLogitRowThreads)) {
    const ScoredToken part = parts[i];
    best = better_part(best, part.token < 0 ? ScoredToken{0.0f, kNotANumber} : part);
  }
  return best;
}

// Below the k-th largest logit of the row, or equal to it: `mine` of k threads, each its own logit, are not below. The
// distance to the largest is found to within 1/32. Where it is more than 512 or there are fewer, the least finite one.
NODEWRIGHT_DEVICE float least_of_top_k(float top, float mine, int k) {
  constexpr uint32_t kStep = 1u << 18, kNearest = 0x3c000000u;  // of a float's bits; 2^-7
  const auto at = [&](uint32_t steps) { return top - bits_to_float(kNearest + steps * kStep); };
  uint32_t steps = 0;
  NODEWRIGHT_NO_UNROLL
  for (uint32_t bit = 256; bit > 0; bit /= 2)
    if (__syncthreads_count(mine >= at(steps + bit - 1) ? 1 : 0) < k) steps += bit;
  return steps < 511 ? at(steps) : kLeastFinite;
}

// What a block knows of its row: the best, a bound of the k-th largest, and one of the n-th, n the block's share of k.
struct BlockBound {
  ScoredToken best;
  float least, of_share;
};
static_assert(sizeof(BlockBound) == 16);

// The best of the row, and the largest bound of its k-th: that of any block, or the smallest bound of all blocks'
// shares. `bounds`: [kBlocks] of shared memory.
template <int kBlocks>
NODEWRIGHT_DEVICE void meet_bounds(ScoredToken& best, float& least, float of_share, BlockBound* bounds) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kBlocks) store_to_block(thread, bounds + cluster_rank(), BlockBound{best, least, of_share});
  sync_blocks<kBlocks>();
  NODEWRIGHT_NO_UNROLL
  for (int i = 0; i < kBlocks; ++i) {
    const BlockBound bound = bounds[i];
    best = better_part(best, bound.best);
    least = fmaxf(least, bound.least);
    of_share = fminf(of_share, bound.of_share);
  }
  least = fmaxf(least, of_share);
}

}  // namespace nodewright
