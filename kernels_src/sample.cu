// Greedy, or the largest logit infinite: its first index. Otherwise argmax(logit / T + gumbel(seed, output index,
// token)) over the tokens that top-k and then top-p keep: one draw, no sort, no dependence on row, batch or step. Both
// limits are found as thresholds on the logit by radix selection, 8 bits a pass; masses are 64-bit fixed point, so the
// sums are exact and their order does not matter. Block (b, m): row m; of several, all look for its largest logit, each
// in a range of its own, and the first does the rest.
#include "kernels_src/device/cluster.cuh"
#include "kernels_src/device/logit_row.cuh"
#include "kernels_src/device/philox.cuh"
#include "kernels_src/sample.h"

namespace nodewright {

constexpr int kHeavy = 2;  // loads in flight of a walk that computes for longer than it reads

// The key of the element at which the weights of the elements >= it, taken from the largest down, first reach `wanted`.
// weight(i) is the element's 64-bit weight, 0 = not counted. `bins`: kSampleBins; `found`: 2 words of shared memory.
template <class Weight>
NODEWRIGHT_DEVICE uint32_t select_from_top(const float* logits, int64_t vocab, unsigned long long wanted,
                                           unsigned long long* bins, unsigned long long* found, Weight weight) {
  uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int b = static_cast<int>(threadIdx.x); b < static_cast<int>(kSampleBins);
         b += static_cast<int>(kSampleThreads))
      bins[b] = 0;
    __syncthreads();
    for_each_logit<kHeavy>(logits, vocab, [&](float v, int) {
      const uint32_t key = ordered_key(v);
      if (shift < 24 && (key >> (shift + 8)) != (prefix >> (shift + 8))) return;
      const unsigned long long w = weight(v);
      if (w != 0) atomicAdd(&bins[(key >> shift) & 255u], w);
    });
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned long long above = 0;
      int bin = static_cast<int>(kSampleBins) - 1;
      while (bin > 0 && above + bins[bin] < wanted) above += bins[bin--];
      found[0] = static_cast<unsigned long long>(bin);
      found[1] = wanted - above;
    }
    __syncthreads();
    prefix |= static_cast<uint32_t>(found[0]) << shift;
    wanted = found[1];
    __syncthreads();
  }
  return prefix;
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(sample, Sample, kSampleThreads) {
  constexpr int kParts = static_cast<int>(kBlocksOfRow);
  release_dependents();
  if constexpr (kParts > 1) cluster_arrive();
  const int part = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  const int live = load_settled(args.n_live.data), sequence = load_settled(args.sequences.data + row);
  const float temperature = load_settled(args.temperature.data + row);
  wait_for_inputs();
  if (row >= live) return;
  auto* bins = reinterpret_cast<unsigned long long*>(shared_memory());  // [kSampleBins]
  auto* found = bins + kSampleBins;                                     // [2]
  auto* scratch = reinterpret_cast<ScoredToken*>(found + 2);            // [32]
  const float* logits = args.logits.data + row * args.logits_stride;
  const bool greedy = !(temperature >= kLeastTemperature);

  // The largest logit; a NaN wins over everything and fails the row.
  ScoredToken best{-INFINITY, -1};
  bool has_nan = false;
  if (args.best.count > 0) {
    const auto parts = static_cast<unsigned>(args.best.count) / gridDim.y;
    for (unsigned i = threadIdx.x; i < parts; i += kSampleThreads) {
      const ScoredToken of_part = args.best.data[row * parts + i];
      has_nan |= of_part.token < 0;
      best = better(best, of_part);
    }
  } else {
    const int vocab = static_cast<int>(args.vocab), share = (vocab + 4 * kParts - 1) / (4 * kParts) * 4;
    const int first = part * share;
    for_each_logit(logits + first, min(share, vocab - first), [&](float v, int i) {  // ascending: the first of equals
      has_nan |= v != v;
      if (v > best.score || best.token < 0) best = ScoredToken{v, first + i};
    });
  }
  has_nan = block_max(has_nan ? 1.0f : 0.0f, reinterpret_cast<float*>(scratch)) > 0.0f;
  best = block_best<static_cast<int>(kLogitRowThreads / 32)>(best, scratch);
  if constexpr (kParts > 1) {
    ScoredToken* const parts = scratch + 32;  // [kBlocksOfRow]
    cluster_wait();
    if (threadIdx.x == 0) store_to_block(0, parts + part, ScoredToken{best.score, has_nan ? kNotANumber : best.token});
    cluster_arrive();
    cluster_wait();
    if (part != 0) return;
    for (int i = 0; i < kParts; ++i) {
      has_nan |= parts[i].token == kNotANumber;
      best = better(best, parts[i]);
    }
  }

  const bool weighs = fabsf(best.score) < INFINITY;  // else there is nothing to weigh the others against
  if (!greedy && !has_nan && weighs) {
    const float top = best.score, inverse = 1.0f / temperature;
    uint32_t threshold = 0;  // keys below it are out
    const int k = args.top_k.data[row];
    if (k > 0 && k < args.vocab)
      threshold = select_from_top(logits, args.vocab, static_cast<unsigned long long>(k), bins, found,
                                  [](float) { return 1ull; });
    const float p = args.top_p.data[row];
    if (p < 1.0f) {
      const auto mass = [&](float v) -> unsigned long long {
        if (ordered_key(v) < threshold) return 0;
        return static_cast<unsigned long long>(expf((v - top) * inverse) * 4294967296.0f);
      };
      if (threadIdx.x == 0) found[0] = 0;
      __syncthreads();
      unsigned long long part = 0;
      for_each_logit<kHeavy>(logits, args.vocab, [&](float v, int) { part += mass(v); });
      atomicAdd(&found[0], part);
      __syncthreads();
      const auto wanted = static_cast<unsigned long long>(static_cast<double>(found[0]) * (p > 0.0f ? p : 0.0f));
      __syncthreads();
      threshold = select_from_top(logits, args.vocab, wanted > 0 ? wanted : 1, bins, found, mass);
    }
    const uint64_t seed = args.seed.data[row];
    const auto index = static_cast<uint32_t>(args.output_index.data[row]);
    best = ScoredToken{-INFINITY, -1};
    for_each_logit<kHeavy>(logits, args.vocab, [&](float v, int i) {
      if (ordered_key(v) < threshold) return;
      const float score = (v - top) * inverse + gumbel_noise(seed, index, static_cast<uint32_t>(i));
      if (score > best.score || best.token < 0) best = ScoredToken{score, i};
    });
    best = block_best<static_cast<int>(kLogitRowThreads / 32)>(best, scratch);
  }
  if (threadIdx.x == 0) {
    const int token = has_nan ? -1 : best.token;
    args.tokens.data[row] = token;
    if (args.delivered.count > 0) args.delivered.data[row] = token;
    args.last_token.data[sequence] = token;
  }
}
