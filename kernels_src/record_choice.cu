// log p(token) = logit - log(sum(exp(logits))), and the same of the likeliest, found one after the other: a pass each,
// over a row that the L2 cache holds. Block m: row m.
#include "kernels_src/device/logit_row.cuh"
#include "kernels_src/record_choice.h"

NODEWRIGHT_KERNEL(record_choice, RecordChoice, kLogitRowThreads) {
  release_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.x);
  if (row >= args.n_live.data[0]) return;
  auto* scratch = reinterpret_cast<ScoredToken*>(shared_memory());  // [32]
  const float* logits = args.logits.data + args.rows.data[row] * args.stride;
  const int token = args.tokens.data[row], wanted = token < 0 ? -1 : args.logprobs.data[row];
  const bool is_first = threadIdx.x == 0;
  if (is_first && token >= 0 && args.counted.data[row] != 0)
    ++args.counts.data[args.sequences.data[row] * args.vocab + token];
  int32_t* top_tokens = args.top_tokens.data + row * kMostLogprobs;
  float* top_logprobs = args.top_logprobs.data + row * kMostLogprobs;
  if (is_first) {
    args.logprob.data[row] = 0.0f;
    for (int k = wanted < 0 ? 0 : wanted; k < kMostLogprobs; ++k) top_tokens[k] = -1, top_logprobs[k] = 0.0f;
  }
  if (wanted < 0) return;

  float top = -INFINITY, sum = 0.0f;
  for_each_logit(logits, args.vocab, [&](float v, int) { top = fmaxf(top, v); });
  top = block_max(top, reinterpret_cast<float*>(scratch));
  for_each_logit(logits, args.vocab, [&](float v, int) { sum += expf(v - top); });
  const float log_sum = logf(block_sum(sum, reinterpret_cast<float*>(scratch)));
  if (is_first) args.logprob.data[row] = logits[token] - top - log_sum;

  ScoredToken last{INFINITY, -1};
  for (int k = 0; k < wanted; ++k) {
    ScoredToken best{-INFINITY, -1};
    for_each_logit(logits, args.vocab, [&](float v, int i) {  // in ascending order: the first of equals stays
      const bool is_next = v < last.score || (v == last.score && i > last.token);
      if (is_next && (v > best.score || best.token < 0)) best = ScoredToken{v, i};
    });
    best = last = block_best<static_cast<int>(kLogitRowThreads / 32)>(best, scratch);
    const bool found = best.token >= 0;  // else the vocabulary has fewer
    if (is_first) top_tokens[k] = best.token, top_logprobs[k] = found ? best.score - top - log_sum : 0.0f;
    if (!found) last = ScoredToken{-INFINITY, static_cast<int>(args.vocab)};
  }
}
