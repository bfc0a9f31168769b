// The options of a request's sampling beyond temperature, min-p, top-k and top-p. A request that sets none of them
// takes no part in the second choice of its steps (models/plan/choice_graph.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/shared_list.h"
#include "engine/device/step_inputs.h"
#include "engine/schedule/request.h"
#include "models/step/choice_state.h"

namespace nodewright {

struct TokenBias {
  int32_t token = 0;
  float bias = 0;  // added to its logit; -infinity: never chosen
  bool operator==(const TokenBias&) const = default;
};

// Sets the bits of the tokens that may follow `outputs`: token i is bit i % 32 of word i / 32. All are 0 at first. An
// exception fails its request alone, and so does allowing no token.
using MaskFunction = std::function<void(std::span<const int32_t> outputs, std::span<uint32_t> allowed)>;
// Called once for each token of the request, in order, but for stop ids: the end that follows from it, if any.
using EndFunction = std::function<std::optional<EndReason>(int32_t token)>;

// In the order in which they act.
struct ChoiceOptions {
  MaskFunction allow;            // empty: everything
  SharedList<TokenBias> biases;  // at most kMostBiases together with the stop ids that min_tokens forbids, and with
  SharedList<std::vector<int32_t>> bad_sequences;  // the last token is not chosen where outputs end with those before
  int64_t min_tokens = 0;                          // no stop id is sampled before this many outputs
  float repetition_penalty = 1;  // divides logits above 0, multiplies those below, of tokens in prompt and outputs
  float presence_penalty = 0;    // subtracted from logits of tokens in the outputs
  float frequency_penalty = 0;   // and this for each time
  int logprobs =
      -1;  // log probabilities (raw distribution) of the chosen token and this many of the likeliest; -1: none
  EndFunction ends;          // empty: never; not part of the choice
  int prompt_logprobs = -1;  // as logprobs, of each token of the prompt but the first; not part of the choice

  bool penalises() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
  // Whether the tokens so far say what may come next: then the choice waits for the one before it.
  bool follows_outputs() const { return allow || !bad_sequences.empty(); }
  // Whether its rows that choose take part in the second choice.
  bool shapes() const { return follows_outputs() || !biases.empty() || min_tokens > 0 || penalises() || logprobs >= 0; }
  bool needs_choices() const { return shapes() || prompt_logprobs >= 0; }
};

// The log probability of a chosen token, and the likeliest tokens with theirs.
struct TokenLogprobs {
  RequestId request = 0;
  int64_t output = 0;  // index of the token among the request's outputs or, of a prompt's, in the prompt
  int32_t token = 0;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top;  // the likeliest first
};

// The log probabilities of a second choice's row `choice`, with the `top` likeliest; `output` as above.
TokenLogprobs logprobs_of(const ChoiceOutputs& out, int32_t choice, RequestId request, int64_t output, int top);

// Why no request can be served with these; empty when it can. `stop_ids`: those of the request.
std::string why_not(const ChoiceOptions& options, std::span<const int32_t> stop_ids, int64_t vocab);

// The host's inputs for a row of a second choice.
struct RowChoice {
  int32_t step_row = 0;  // among the step's rows
  int32_t sequence = 0;
  int64_t output = 0;
  const Sampling& sampling;
  const ChoiceOptions& options;
  std::span<const int32_t> stop_ids;
  std::span<const int32_t> outputs = {};  // so far; of a request whose options follow them
  int32_t forced = -1;                    // 0 or above: the token, which is only reported
};

// `in`: the pinned block of a bucket, with at least row + 1 rows. The mask is not written.
void write_choice(const ChoiceInputs& in, int64_t row, const RowChoice& choice);
// The words of a row's mask, all 0.
std::span<uint32_t> cleared_mask(const ChoiceInputs& in, int64_t row);

// The counts of a sequence that begins, or goes on, with this prompt and these outputs.
std::vector<int32_t> token_counts(std::span<const int32_t> prompt, std::span<const int32_t> outputs, int64_t vocab);

}  // namespace nodewright
