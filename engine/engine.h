// Serves many requests at once with one model on one device: continuous batching over buckets of rows, two steps in
// flight, a paged cache whose prompts share pages. Single-threaded: whoever owns it calls advance() until it says that
// there is nothing to do.
//
//   Engine engine(device, kernels, model, {.max_batch = 8, .max_context = 2048});
//   const RequestId id = engine.submit({.prompt = ids, .max_tokens = 64, .stop_ids = {2}}).id.value();
//   while (engine.advance())
//     for (const CommittedToken& token : engine.take_tokens()) ...;
//   engine.take_resolutions();     every request that was accepted, once
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "engine/step_slots.h"

namespace nodewright {

struct EngineOptions {
  int max_batch = 8;         // requests served at once, and rows of the largest decode step
  int chunk = 8;             // prompt tokens of a step
  std::vector<int> buckets;  // rows of the graphs; empty: BucketSet::up_to the larger of both
  int64_t max_context = 0;   // tokens of prompt and outputs
  int64_t pages = 0;         // of the cache; 0: enough for max_batch requests of max_context tokens
  bool prefix_cache = true;  // prompts that begin alike share pages
  bool mixed = true;         // steps with prompt tokens take along the rows that decode
  int depth = kSlots;        // steps in flight; 1: no pipelining
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
  std::function<void(const BuiltBucket&)> built;  // progress of the start; may be empty

  // Rows from which on steps are library products (models/step_shape.h); 0: never.
  int64_t products_from = kProductsFromRows;
  PrefillForm prefill = PrefillForm::graph;
};

struct EngineStats {
  std::map<int, int64_t> launches;  // of steps, by bucket
  int64_t prefill_steps = 0;        // of those, with prompt tokens
  int64_t prompt_tokens = 0;        // that went through the layers
  int64_t output_tokens = 0;        // that requests accepted
  int64_t padded_rows = 0;
  int64_t zombie_rows = 0;  // computed for requests that had ended
};

class Engine {
 public:
  // Throws Error where an option is out of range or contradicts another, naming both, and as StepSlots does.
  Engine(Device& device, KernelCache& kernels, const DecoderModel& model, const EngineOptions& options);

  // Accepts the request, or says why not: a prompt that does not fit, a token outside the vocabulary, sampling out of
  // range, a constrained request (there are no masks yet), an engine that has failed.
  PipelineState::Submitted submit(RequestSpec spec, const Sampling& sampling = {});
  // False when it had ended.
  bool cancel(RequestId id) { return pipeline_.cancel(id); }

  // Does one thing: admits a request, launches a step, or waits for the tokens of the oldest. False when nothing is to
  // be done. When the driver fails, every request is resolved as failed with its message, and nothing more is served.
  bool advance();

  // Since the last call.
  std::vector<CommittedToken> take_tokens() { return std::exchange(tokens_, {}); }
  std::vector<Resolution> take_resolutions();

  // Launches no more; what is in flight is still to be advanced. Throws Error unless it is running.
  void pause() { pipeline_.pause(); }
  void resume() { pipeline_.resume(PipelineState::Rebuilt::nothing); }

  const PipelineState& pipeline() const { return pipeline_; }
  StepSlots& slots() { return slots_; }
  const EngineStats& stats() const { return stats_; }

 private:
  void launch(const StepPlan& plan);
  void dispatch(const InFlightStep& step);
  void commit();

  int64_t vocab_;
  SchedulerOptions scheduling_;
  PipelineState pipeline_;
  StepSlots slots_;
  std::map<RequestId, Sampling> sampling_;  // of those whose end was not taken
  std::vector<CommittedToken> tokens_;
  EngineStats stats_;
};

}  // namespace nodewright
