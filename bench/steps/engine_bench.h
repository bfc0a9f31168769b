// What the engine adds to the steps that it runs: requests that decode together, beside a bare loop of the same graphs
// that has no scheduler, no pool and no requests; with and without a second step in flight; and with a host that is
// busy after every step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/spread.h"
#include "engine/engine.h"

namespace nodewright {

struct EngineBenchOptions {
  std::vector<int64_t> batches{64};    // requests at once
  int64_t prompt = 128, output = 256;  // tokens of each
  double busy_us = 200;                // that the host spends after a step, where it is busy
  int rounds = 3;                      // of each way, taking turns
  int64_t max_context = 0;             // of the graphs; 0, or less than a request: a request's tokens
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
  Numerics numerics = Numerics::fast;
  std::shared_ptr<const Tuning> tuning;
};

// Steps in which every request decodes. Medians over the rounds.
struct EngineWay {
  Spread step_ms;    // from one step's tokens to the next one's, the mean over a round
  Spread median_ms;  // of single steps
  Spread p99_ms;     // of single steps
  Spread gap_us;     // median of what the device waited between two steps; a round of its own, with events
  Spread gap_p99_us;
  // Else no step had all requests: the first answer ended before the last prompt had been read.
  bool measured() const { return step_ms.median > 0; }
};

struct EngineBenchLine {
  int64_t batch = 0;
  EngineWay bare, pipelined, one_at_a_time, busy_pipelined, busy_one_at_a_time;
  bool is_complete() const {
    return pipelined.measured() && one_at_a_time.measured() && busy_pipelined.measured() &&
           busy_one_at_a_time.measured();
  }
  // For a complete line.
  double over_bare() const { return pipelined.step_ms.median / bare.step_ms.median; }
  double busy_gain() const { return busy_one_at_a_time.step_ms.median / busy_pipelined.step_ms.median; }
};

// Throws Error (usage) where prompt and output do not fit the model's context, or the output is shorter than 8.
std::vector<EngineBenchLine> bench_engine(std::span<const ModelPlace> places, const EngineBenchOptions& options,
                                          const std::function<void(const EngineBenchLine&)>& told);

}  // namespace nodewright
