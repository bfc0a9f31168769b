// The log probability of a token of a prompt, and the likeliest tokens in its place: as one device computes them, or as
// the ranks of a team do together, each of which knows the logits of its part of the vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "models/step/choice_state.h"

namespace nodewright {

// A token of a prompt whose log probability is asked for.
struct ScoredRow {
  int32_t step_row = 0;  // of the token before it
  int32_t token = 0;
  int32_t logprobs = 0;  // of how many of the likeliest
};

// The score of such a token.
struct TokenScore {
  int32_t token = 0;  // -1: the logits before it have a NaN
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top;  // the likeliest first
};

// The result of one rank, for its tokens, which begin with `first`.
struct RankScore {
  const ChoiceOutputs& outputs;
  int32_t row = 0;        // of the outputs
  float log_sum = 0;      // log(sum(exp(logits)))
  int32_t first = 0;      // of the vocabulary
  bool has_token = true;  // the one that is scored
};

// `ranks`: the results by rank, that of the token's own rank among them; for one device, its only one.
TokenScore token_score(std::span<const RankScore> ranks, const ScoredRow& asked);

}  // namespace nodewright
