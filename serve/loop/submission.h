// What the engine's thread is asked for, and what it tells: the contract between the API, which knows JSON, and the
// loop, which knows the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling/choice_options.h"
#include "engine/schedule/pipeline.h"
#include "engine/schedule/request.h"
#include "serve/fields/request_reader.h"

namespace nodewright {

// What a step gave one output of a submission.
struct OutputUpdate {
  int index = 0;                // Submission::first_index + its place among the outputs
  std::vector<int32_t> tokens;  // chosen since the last update, a stop id that ended it included
  std::string text;             // of an output with stop strings: what they let through since then; else empty
  std::string stop_string;      // with an end by one: which
  std::vector<TokenLogprobs> logprobs, prompt_logprobs;  // of the prompt: with the first of its outputs
  std::optional<Resolution> end;                         // the last update of this output
};

// Who waits for a submission's outputs. Called on the loop's delivery thread, one call after the other in the order of
// the steps: what it does delays other listeners, and no step. Must not throw.
class Listener {
 public:
  virtual ~Listener() = default;
  // The engine does not take an output, and says why. Others of the same call may have been taken.
  virtual void refused(const std::string& reason) = 0;
  // After a step: at most one for each output.
  virtual void updated(std::vector<OutputUpdate> updates) = 0;
};

// One prompt with its outputs.
struct Submission {
  AskedRequest asked;
  int first_index = 0;  // of its outputs among those of the same call
  uint64_t client = 0;  // clients share an engine (engine/schedule/fair_turns.h)
  std::shared_ptr<Listener> listener;
};

}  // namespace nodewright
