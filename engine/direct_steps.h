// Sequences of one device whose caller makes every step: it says which rows a step has, gives them tokens, and may read
// their logits or have several steps in a launch. Synchronous, on one thread; requests are an Engine's.
//
//   DirectSteps steps({&device, &kernels, &model}, {.bucket = 4, .slots = {.max_context = 2048, .sequences = 4}});
//   steps.append(0, prompt_without_its_last_token);
//   const StepRow first[] = {{.sequence = 0, .token = prompt.back()}}, next[] = {{.sequence = 0}};
//   steps.launch(first)[0];   the token that it chose
//   steps.launch(next)[0];    and the one after that token, which never left the device
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/step_device.h"
#include "engine/device/step_inputs.h"
#include "graph/plan_run.h"

namespace nodewright {

// One row of a launch.
struct StepRow {
  int32_t sequence = 0;
  std::optional<int32_t> token;  // nothing: the last that was chosen for this sequence
  Sampling sampling = {};
  // With several steps a launch: the row ends with its `most`-th token or with one of `stop_ids`.
  int64_t most = 1;                        // at most the steps of a launch
  std::span<const int32_t> stop_ids = {};  // at most kMostStopIds
};

struct DirectStepsOptions {
  int64_t bucket = 1;        // rows of a step
  int64_t prefill_rows = 8;  // prompt tokens that go through the layers at once
  bool keep_logits = false;  // read_logits() may be called; else steps leave those that no choice reads
  StepSlotsOptions slots;    // buckets and pages count for nothing
};

class DirectSteps {
 public:
  // Every sequence has pages of its own, for max_context tokens. Throws Error when an option is out of range, memory is
  // short or a kernel does not compile. After any other call has thrown for the driver only destruction is right.
  DirectSteps(const ModelPlace& place, const DirectStepsOptions& options);

  // Empties the sequence, which has the adapter of that slot from now on, or none.
  void restart(int32_t sequence, int32_t adapter = -1) { at(sequence) = {.adapter = adapter}; }
  int64_t length(int32_t sequence) const { return sequences_.at(static_cast<size_t>(sequence)).length; }
  // Puts tokens into the cache and chooses none. Throws Error for a token outside the vocabulary and past max_context;
  // then nothing was appended.
  void append(int32_t sequence, std::span<const int32_t> tokens);
  // The same for at most a bucket of tokens, with keep_logits and as many rows that choose: read_logits(i) has the
  // logits after tokens[i]. Throws Error for logits that hold a NaN, too.
  void append_with_logits(int32_t sequence, std::span<const int32_t> tokens);
  // Runs the steps of a launch over `rows`, at most a bucket of other sequences each. Returns the tokens chosen for
  // each row, the one that ended it included, valid until the next launch. Throws Error as append() does, and for
  // logits that hold a NaN, naming the sequence.
  std::span<const std::vector<int32_t>> launch(std::span<const StepRow> rows);
  // [vocab] of a row of the last launch's last step.
  void read_logits(int64_t row, std::span<float> logits) const;

  // The last launch's run, to be launched again: it rewrites the same positions.
  PlanRun& run() { return *last_run_; }
  const Plan& plan() const { return plan_; }  // of a launch of rows without adapters
  StepShape shape() const { return device_.slot(0).memory->shape(options_.bucket); }  // how that plan is computed
  const BuiltGraphs& built() const { return built_; }
  StepDevice& device() { return device_; }
  const DirectStepsOptions& options() const { return options_; }

 private:
  struct Sequence {
    int64_t length = 0;   // tokens in the cache
    int32_t outputs = 0;  // tokens chosen
    int32_t adapter = -1;
  };

  void extend(int32_t sequence, std::span<const int32_t> tokens, const DecodeState& state, PlanRun& run,
              bool with_logits);
  Sequence& at(int32_t sequence) { return sequences_.at(static_cast<size_t>(sequence)); }
  void check(int32_t sequence, std::span<const int32_t> tokens, int64_t more) const;

  DirectStepsOptions options_;
  StepDevice device_;
  DecodeState step_state_, prefill_state_;
  Plan plan_;
  std::map<bool, PlanRun> steps_, prefills_;  // by whether rows have adapters
  PlanRun* last_run_;
  std::vector<Sequence> sequences_;
  std::vector<std::vector<int32_t>> chosen_;
  BuiltGraphs built_;
};

}  // namespace nodewright
