// A block's part of a row that is drawn from, its noise, and what its logits weigh.
#pragma once

#include "kernels_src/sampling/philox.cuh"
#include "kernels_src/sampling/weighted_bins.cuh"

namespace nodewright {

NODEWRIGHT_DEVICE uint64_t weight_of(float x) { return static_cast<uint64_t>(expf(x) * 4294967296.0f); }
NODEWRIGHT_CALLED unsigned long long share_of(unsigned long long weight, float p) {
  const auto share = static_cast<unsigned long long>(static_cast<double>(weight) * (p > 0.0f ? p : 0.0f));
  return share > 0 ? share : 1;
}

// The whole random state of a row. In shared memory: registers are few where two blocks share an SM.
struct NoiseState {
  uint64_t seed;
  uint32_t output;
};

NODEWRIGHT_CALLED uint4 noise_of_quad(const NoiseState* state, uint32_t quad) {
  return noise_words(state->seed, state->output, quad);
}

// The i-th of four. By selection, not by address, so that they stay in registers in loops over i.
NODEWRIGHT_DEVICE uint32_t word_at(uint4 words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}
NODEWRIGHT_DEVICE float logit_at(float4 quad, int i) {
  return i == 0 ? quad.x : i == 1 ? quad.y : i == 2 ? quad.z : quad.w;
}

NODEWRIGHT_DEVICE float largest_of(float4 quad) { return fmaxf(fmaxf(quad.x, quad.y), fmaxf(quad.z, quad.w)); }

struct SampledRow {
  const float* logits;  // [count] of this block
  int first, count;     // the first one's token
  float top;            // of the whole row
  float temperature, inverse;
  float least;  // min-p or top-k leave out what is below it
  int k;        // 0: no limit
  float p;      // 1: no limit
  const NoiseState* noise;

  NODEWRIGHT_DEVICE float distance(float v) const { return (v - top) * inverse; }  // negated
  // No logit whose bin is `bin` or one before it is smaller: beside the rounding of distance() and of this.
  NODEWRIGHT_DEVICE float least_of(int bin) const {
    return bin >= kBins - 1 ? -INFINITY : top + (end_of_bin(bin) * 1.0001f - 0.001f) * temperature;
  }
};

}  // namespace nodewright
