// An engine as its users see it: how long they wait for a first token and between two, and how much of it there is.
// Requests arrive as planned, or each when another ends; or one long prompt arrives beside rows that decode.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/spread.h"
#include "bench/steps/arrivals.h"
#include "bench/steps/row_sampling.h"
#include "engine/engine.h"

namespace nodewright {

struct TrafficOptions {
  std::vector<PlannedRequest> requests;
  int64_t concurrency = 0;                // requests that are open at once, whatever their arrival says; 0: by arrival
  RowSampling sampling;                   // of every request; its seed is the first one's
  uint64_t seed = 0;                      // of the prompts
  int64_t vocab = 0;                      // that prompts are drawn from
  int rounds = 1;                         // of the same requests with other tokens, whose figures are one sample
  std::function<void(bool)> counts = {};  // told true before what the figures are of, and false after it
};

struct TrafficFigures : RequestFigures {
  int64_t steps = 0;
  // What the device waits from the end of a step to the begin of the next one, when there is work: of one more round,
  // whose steps carry events.
  Tail idle_us;
};

// Ends when every request has. The engine must be idle. Throws Error when a request is refused or fails.
TrafficFigures measure_traffic(Device& device, Engine& engine, const TrafficOptions& options);

struct ArrivingPromptOptions {
  int decoders = 8;                       // requests that decode when the prompt arrives
  int64_t prompt = 8192;                  // tokens of it
  RowSampling sampling;                   // of the decoders
  uint64_t seed = 0;                      // of the prompts
  int64_t vocab = 0;                      // that prompts are drawn from
  int rounds = 3;                         // the prompt alone and beside the decoders, in turns
  std::function<void(bool)> counts = {};  // as above
};

// Tokens of a decoder's own prompt, and how many it may write beyond the tokens of the prompt that arrives.
inline constexpr int64_t kDecoderPrompt = 16, kMostOverPrompt = 128;

struct ArrivingPromptFigures {
  int64_t prompt = 0;
  Tail before_ms;              // between two tokens of a decoder, before the prompt arrives
  Tail during_ms;              // the same while it goes through
  Tail full_step_ms;           // of the steps with prompt tokens that were computed in the largest bucket of them
  Spread worst_gap_ms;         // the longest of each round, the gap that the prompt's end closes included
  Spread alone_tokens_per_s;   // of the prompt, until its first token, with nobody else
  Spread beside_tokens_per_s;  // with the decoders
  double worst_over_step() const { return worst_gap_ms.median / full_step_ms.median; }
  double share() const { return beside_tokens_per_s.median / alone_tokens_per_s.median; }
};

// The engine must be idle, have room for one request more than there are decoders, and tell each step to `steps`
// (EngineOptions::stepped). Throws Error as above.
ArrivingPromptFigures measure_arriving_prompt(Engine& engine, std::vector<StepRecord>& steps,
                                              const ArrivingPromptOptions& options);

}  // namespace nodewright
