// shaped = logits, -inf where the mask denies; + bias; the penalties of transformers (repetition) and of OpenAI's
// interface (presence, frequency); -inf below min_p. A NaN stays one, whatever denies it. Block m: row m; what a thread
// writes in one pass another may change in the next.
#include "kernels_src/device/logit_row.cuh"
#include "kernels_src/shape_logits.h"

NODEWRIGHT_KERNEL(shape_logits, ShapeLogits, kLogitRowThreads) {
  release_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  if (row >= args.n_live.data[0]) return;
  auto* scratch = reinterpret_cast<float*>(shared_memory());  // [32]
  constexpr int kThreads = static_cast<int>(kLogitRowThreads);
  const int vocab = static_cast<int>(args.vocab);
  const float* logits = args.logits.data + args.rows.data[row] * args.stride;
  float* shaped = args.shaped.data + row * args.stride;

  const bool constrained = args.constrained.data[row] != 0;
  const uint32_t* mask = args.masks.data + row * args.mask_words;
  for_each_logit(logits, args.vocab, [&](float v, int i) {
    const bool denied = constrained && (mask[i / 32] >> (i % 32) & 1u) == 0;
    shaped[i] = denied && v == v ? -INFINITY : v;
  });
  __syncthreads();

  const int biases = args.biases.data[row];
  for (int b = thread; b < biases; b += kThreads) {
    const float bias = args.bias_values.data[row * kMostBiases + b];
    float& v = shaped[args.bias_tokens.data[row * kMostBiases + b]];
    v = v == v && bias == -INFINITY ? bias : v + bias;
  }
  __syncthreads();

  const float repetition = args.repetition_penalty.data[row], presence = args.presence_penalty.data[row],
              frequency = args.frequency_penalty.data[row];
  if (repetition != 1.0f || presence != 0.0f || frequency != 0.0f) {
    const int32_t* counts = args.counts.data + args.sequences.data[row] * args.vocab;
    for (int i = thread; i < vocab; i += kThreads) {
      const int count = counts[i];
      if (count == 0) continue;
      const int chosen = count & (kInPrompt - 1);
      float v = shaped[i];
      v = v > 0.0f ? v / repetition : v * repetition;
      if (chosen > 0) v = v - frequency * static_cast<float>(chosen) - presence;
      shaped[i] = v;
    }
  }

  float top = -INFINITY;
  bool any = false;
  for (int i = thread; i < vocab; i += kThreads) {  // the elements that this thread penalised
    const float v = shaped[i];
    top = fmaxf(top, v);
    any |= !(v == -INFINITY);
  }
  top = block_max(top, scratch);
  any = block_max(any ? 1.0f : 0.0f, scratch) > 0.0f;
  const float min_p = args.min_p.data[row], temperature = args.temperature.data[row];
  if (min_p > 0.0f && temperature >= kLeastTemperature && fabsf(top) < INFINITY) {
    const float least = top + temperature * logf(min_p);
    for (int i = thread; i < vocab; i += kThreads)
      if (shaped[i] < least) shaped[i] = -INFINITY;
  }
  if (thread == 0) {
    if (!any) shaped[0] = bits_to_float(0x7fc00000u);
    args.kept.data[row] = any ? 1 : 0;
  }
}
