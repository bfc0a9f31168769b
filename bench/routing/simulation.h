// Replicas as step times and nothing else: what the choice of a replica (serve/replicas/replica_choice.h) does to
// throughput and to the first token, for any number of them. No device, no engine; prompts are computed in chunks of a
// step of 512 tokens, as the engine does.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "serve/replicas/replica_choice.h"

namespace nodewright::routing {

// Milliseconds of a step by what it has, between measured points on a line, below and above them as at the nearest.
using Curve = std::vector<std::pair<double, double>>;
double at(const Curve& curve, double x);

struct StepTimes {
  Curve decode;  // by rows that decode
  Curve prompt;  // by tokens of a step with a prompt's
  double step_ms(int64_t decode_rows, int64_t prompt_tokens) const;
};

enum class Policy { least_tokens, round_robin };

struct Range {
  int64_t least = 0, most = 0;
};

struct Traffic {
  int64_t requests = 0;  // of each replica
  Range prompt, output;  // tokens, all lengths alike
  double rate = 0;       // requests a second for each replica, at random times; 0: streams
  int64_t streams = 0;   // of each replica, one request open at a time
  int64_t prefixes = 0;  // of each replica: groups of requests that begin alike; 0: none do
  int64_t prefix_pages = 0;
  int64_t cached_prefixes = 0;  // that a replica's cache holds, the last ones used
};

struct Simulated {
  double tokens_per_s = 0;  // of each replica: of outputs
  double first_token_ms_median = 0, first_token_ms_p99 = 0;
  double found = 0;  // share of prompt tokens that were cached
};

struct Setup {
  size_t replicas = 1;
  int64_t rows = 32;  // outputs that a replica computes at once
  Policy policy = Policy::least_tokens;
  PrefixPreference preference;
  uint64_t seed = 1;
};

// The same numbers for the same arguments.
Simulated simulate(const StepTimes& times, const Traffic& traffic, const Setup& setup);

}  // namespace nodewright::routing
