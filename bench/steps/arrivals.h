// The requests that a measured service gets: when each arrives, how long its prompt is and how long its answer.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/spread.h"

namespace nodewright {

// Lengths from `least` to `most`, each as likely as the others.
struct LengthRange {
  int64_t least = 1, most = 1;  // tokens
  double weight = 1;            // beside the other ranges of a mix
};
using LengthMix = std::vector<LengthRange>;  // never empty
int64_t longest(const LengthMix& mix);

struct PlannedRequest {
  double arrival_s = 0;            // since the first could have come
  int64_t prompt = 1, output = 1;  // tokens
};

// Exponential gaps of 1 / rate seconds in the mean: a Poisson process. A rate of 0: all at once. The same for the same
// seed.
std::vector<PlannedRequest> plan_arrivals(int64_t count, double rate, const LengthMix& prompts,
                                          const LengthMix& outputs, uint64_t seed);

// Random tokens of the vocabulary, by `key`: no two prompts begin alike.
std::vector<int32_t> random_prompt(int64_t tokens, int64_t vocab, uint64_t key);

// How long the requests of a measurement waited, and how much they got.
struct RequestFigures {
  int64_t requests = 0, prompt_tokens = 0, output_tokens = 0;
  double seconds = 0;      // from the first arrival to the last token, of all rounds
  Tail first_token_ms;     // from a request's arrival, scheduled or not, until its first token is at the host
  Tail between_tokens_ms;  // of one request, all requests together; 0 for tokens that come in one step
  Tail request_ms;         // from arrival to the last token
  double output_tokens_per_s() const { return static_cast<double>(output_tokens) / seconds; }
  double prompt_tokens_per_s() const { return static_cast<double>(prompt_tokens) / seconds; }
};

}  // namespace nodewright
