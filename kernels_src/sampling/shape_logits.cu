// shaped = logits, -inf where the mask denies; + bias; the penalties of transformers (repetition) and of OpenAI's
// interface (presence, frequency). A NaN stays one, whatever denies it. Block (p, m): part p of row m.
#include "kernels_src/sampling/logit_row.cuh"
#include "kernels_src/sampling/shape_logits.h"

namespace nodewright {

struct Penalties {
  float repetition, presence, frequency;

  NODEWRIGHT_DEVICE bool any() const { return repetition != 1.0f || presence != 0.0f || frequency != 0.0f; }
  NODEWRIGHT_DEVICE float apply(float v, int count) const {
    if (count == 0) return v;
    const int chosen = count & (kInPrompt - 1);
    v = v > 0.0f ? v / repetition : v * repetition;
    return chosen > 0 ? v - frequency * static_cast<float>(chosen) - presence : v;
  }
};

NODEWRIGHT_DEVICE float masked(float v, bool allowed) { return !allowed && v == v ? -INFINITY : v; }

}  // namespace nodewright

NODEWRIGHT_KERNEL(shape_logits, ShapeLogits, kLogitRowThreads) {
  release_dependents();
  wait_for_inputs();
  const int part = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  if (row >= args.n_live.data[0] || args.forced.data[row] >= 0) return;
  constexpr int kThreads = static_cast<int>(kLogitRowThreads);
  const int vocab = static_cast<int>(args.vocab), parts = static_cast<int>(gridDim.x);
  const int share = (vocab + 4 * parts - 1) / (4 * parts) * 4, first = part * share, count = min(share, vocab - first);
  const float* logits = args.logits.data + args.rows.data[row] * args.stride;
  float* shaped = args.shaped.data + row * args.stride;

  const uint32_t* mask =
      args.constrained.data[row] != 0 ? args.masks.data + row * args.mask_words : static_cast<const uint32_t*>(nullptr);
  const auto allows = [&](int token) { return mask == nullptr || (mask[token / 32] >> (token % 32) & 1u) != 0; };
  const Penalties penalties{args.repetition_penalty.data[row], args.presence_penalty.data[row],
                            args.frequency_penalty.data[row]};
  const int32_t* counts = args.counts.data + args.sequences.data[row] * args.stride;
  const bool penalises = penalties.any();
  ScoredToken best{-INFINITY, -1};
  for_each_quad(logits + first, count, [&](float4 quad, int i, int n) {
    const int token = first + i;  // a multiple of 4: one word of the mask, one load of counts
    const uint32_t allowed = mask == nullptr ? 15u : mask[token / 32] >> (token % 32);
    const uint4 of = penalises ? load_16(counts + token) : make_uint4(0, 0, 0, 0);
    quad.x = penalties.apply(masked(quad.x, (allowed & 1u) != 0), static_cast<int>(of.x));
    quad.y = penalties.apply(masked(quad.y, (allowed & 2u) != 0), static_cast<int>(of.y));
    quad.z = penalties.apply(masked(quad.z, (allowed & 4u) != 0), static_cast<int>(of.z));
    quad.w = penalties.apply(masked(quad.w, (allowed & 8u) != 0), static_cast<int>(of.w));
    keep_best(best, quad.x, token);
    if (n > 1) keep_best(best, quad.y, token + 1);
    if (n > 2) keep_best(best, quad.z, token + 2);
    if (n > 3) keep_best(best, quad.w, token + 3);
    if (n == 4) {
      store_fp32_4(shaped + token, quad);
    } else {
      shaped[token] = quad.x;
      if (n > 1) shaped[token + 1] = quad.y;
      if (n > 2) shaped[token + 2] = quad.z;
    }
  });

  // A biased token is done again: its bias comes before its penalties, and may take the best one's place.
  if (const int biases = args.biases.data[row]; biases > 0) {
    __syncthreads();
    for (int b = static_cast<int>(threadIdx.x); b < biases; b += kThreads) {
      const int token = args.bias_tokens.data[row * kMostBiases + b];
      if (token < first || token >= first + count) continue;
      const float bias = args.bias_values.data[row * kMostBiases + b];
      float v = masked(logits[token], allows(token));
      v = v == v && bias == -INFINITY ? bias : v + bias;
      shaped[token] = penalises ? penalties.apply(v, counts[token]) : v;
    }
    __syncthreads();
    best = ScoredToken{-INFINITY, -1};
    for_each_logit(shaped + first, count, [&](float v, int i) { keep_best(best, v, first + i); });
  }
  best = best_of_block<kThreads / 32>(best, reinterpret_cast<ScoredToken*>(shared_memory()));
  // No element: nothing that could win.
  if (best.token == -1) best = ScoredToken{-INFINITY, vocab};
  if (threadIdx.x == 0) args.best.data[row * parts + part] = best;
}
