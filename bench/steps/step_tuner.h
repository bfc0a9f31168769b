// Finds what a device does better than the shapes of kernels say: candidates are timed inside the complete graph of a
// step, in turns with the best so far, one number after the other until none helps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/decoder_model.h"
#include "models/tuning/step_tuning.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

struct TunerOptions {
  std::vector<int64_t> rows{1};  // of steps that decode
  // Rows of steps that are one prompt each, of which only the library's products are tried, against `in_use`.
  std::vector<int64_t> prompts;
  std::shared_ptr<const Tuning> in_use;  // may be null
  int64_t context = 1024;                // keys that every row of a step that decodes attends to
  std::vector<std::string> parts;        // which are tried: "arithmetic", "attend", "qkv", ...; empty: all
  int samples = 9;                       // of each of the two, in turns
  int launches_per_sample = 20;
  double least_gain = 0.002;  // of the step's time, for a candidate to be taken
  // Standard errors that its gain has to exceed, too, and three samples for there to be any; 0: whatever is faster.
  double least_errors = 3;
  int most_rounds = 2;         // over all numbers; of prompts one
  std::function<bool()> stop;  // asked before each candidate; true: what was found so far is the result
};

// A candidate, as it was measured.
struct TunerTrial {
  int64_t rows = 0;
  std::string number;  // "gate_up.matvec.threads"
  std::string value;
  int samples = 0;                   // of each; fewer than asked for where the candidate is far behind
  double us = 0, best_us = 0;        // medians of a step's device time, of the candidate and of the best before it
  double gain_us = 0, error_us = 0;  // of the two in turns (bench/paired_times.h)
  bool taken = false;
  std::string refused;  // why it cannot be built; empty: it was measured
};

// Throws Error (usage) for a part that does not exist. `told` gets every trial; a candidate whose plan is that
// of the best, or has stood against this best before, is none. Of rows that stop() left untried there is no step.
Tuning tune_steps(Device& device, KernelCache& kernels, const DecoderModel& model, const TunerOptions& options,
                  const std::function<void(const TunerTrial&)>& told);

}  // namespace nodewright
