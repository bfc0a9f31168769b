// The record of a committed step, for logs (EngineOptions::stepped). Plain numbers of
// the host: nothing waits for the device to know them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/schedule/pipeline.h"

namespace nodewright {

struct StepRecord {
  uint64_t step = 0;          // its number: 1, 2, ... in the order of launch
  int64_t prompt_tokens = 0;  // of prompts, and of outputs that are computed anew
  int64_t decode_rows = 0;    // of requests that decode, drafts included
  int64_t drafts = 0;         // of those, the ones that were guessed
  int64_t chosen_again = 0;   // rows of its second choice
  int64_t bucket = 0;         // rows that were computed
  std::string_view run;       // "graph"; without one "captured", "piecewise" or "eager"
  std::string reason;         // why it had no graph; empty where it had
  // From its launch, or the tokens of the step before where they came later, until its own tokens were at the host: the
  // times of successive steps add up to the time in which there was one.
  double us = 0;
  int64_t waiting = 0, admitted = 0;  // requests, after it
  int64_t free_pages = 0;             // that nobody owns, cached ones included; after it

  int64_t rows() const { return prompt_tokens + decode_rows; }
  int64_t padding() const { return bucket - rows(); }
};

// The rows of a step that is not committed yet.
StepRecord record_rows(const PipelineState& pipeline, const InFlightStep& step);

class StepTimes {
 public:
  void launched(int slot) { launched_.at(static_cast<size_t>(slot)) = Clock::now(); }
  // Microseconds as StepRecord::us; to be called when the tokens are there.
  double came(int slot);

 private:
  using Clock = std::chrono::steady_clock;
  std::array<Clock::time_point, kSlots> launched_{};
  Clock::time_point last_;
};

}  // namespace nodewright
