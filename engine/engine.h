// Serves many requests at once with one model, on one device or parts of it on several: continuous batching over
// buckets of rows, two steps in flight, a paged cache whose prompts share pages. Single-threaded: its owner calls
// advance() until that reports idle.
//
//   Engine engine(device, kernels, model, {.max_batch = 8, .max_context = 2048});
//   const RequestId id = engine.submit({.prompt = ids, .max_tokens = 64, .stop_ids = {2}}).id.value();
//   while (engine.advance())
//     for (const CommittedToken& token : engine.take_tokens()) ...;
//   engine.take_resolutions();     every request that was accepted, once
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapters/adapter_table.h"
#include "engine/device/hidden_rows.h"
#include "engine/engine_options.h"
#include "engine/engine_stats.h"
#include "engine/sampling/choice_options.h"
#include "engine/sampling/prompt_scores.h"
#include "engine/schedule/drafter.h"
#include "engine/schedule/scheduler.h"
#include "engine/step_record.h"
#include "engine/topology/step_slots.h"

namespace nodewright {

// How a decode step of `rows` rows would run.
struct CanRun {
  bool can = false;
  int bucket = 0;  // 0: none, or eager
  RunMode mode = RunMode::explicit_;
  std::string reason;  // why this bucket, why eager, why not
};

// What a request's mask and end functions threw, if anything.
struct OwnerFailure {
  std::string why;          // empty: nothing
  bool by_request = false;  // an error of use: what it asks for cannot be done
};

class Engine {
 public:
  // Throws Error where an option is out of range or contradicts another, naming both, and as StepSlots does. Device,
  // kernels and model must outlive this.
  Engine(Device& device, KernelCache& kernels, const DecoderModel& model, const EngineOptions& options)
      : Engine(std::array{ModelPlace{&device, &kernels, &model}}, options) {}
  // `ranks`, by rank: several devices run every step together, each with its part of the model (tensor parallel).
  // Requests then have no log probabilities of prompts, and weights are not replaced. Or by stage: a step goes through
  // the layers of one device after the other (pipeline stages). Then there are no adapters, and weights are not
  // replaced.
  Engine(std::span<const ModelPlace> ranks, const EngineOptions& options);

  // Accepts the request, or says why not: a prompt that does not fit, a token outside the vocabulary, sampling out of
  // range, choices for which EngineOptions::choices makes no room, an engine that has failed.
  PipelineState::Submitted submit(RequestSpec spec, const Sampling& sampling = {}, ChoiceOptions choice = {});
  // LoRA adapters (engine_adapters.cpp); only with EngineOptions::max_adapters.

  // Reads a folder of PEFT into memory, ready to be loaded. From any thread: it takes the time of reading and rounding
  // all of it. Throws Error as LoraAdapter::open and AdapterImage do.
  std::shared_ptr<const AdapterImage> read_adapter(const std::filesystem::path& folder) const;
  // Host memory of an image, whatever the adapter's rank; 0 without slots for adapters.
  uint64_t adapter_image_bytes() const;
  // Requests may name the adapter from now on. Throws Error where the name is empty or taken.
  void load_adapter(const std::string& name, std::shared_ptr<const AdapterImage> image);
  // No request may name the adapter from now on; those that have it go on. False when no adapter has this name.
  bool unload_adapter(const std::string& name);
  std::vector<LoadedAdapter> adapters() const { return adapters_.list(); }
  int most_adapters() const { return options_.max_adapters; }  // that the device holds at once
  int max_batch() const { return options_.max_batch; }         // requests served at once

  // Ends the request as cancelled. False when it had ended before.
  bool cancel(RequestId id) { return pipeline_.cancel(id); }

  // Does one thing: admits a request, launches a step, or waits for the tokens of the oldest. False when nothing is to
  // be done. When the driver fails, every request is resolved as failed with its message, and nothing more is served.
  bool advance();

  // Since the last call.
  std::vector<CommittedToken> take_tokens() { return std::exchange(tokens_, {}); }
  std::vector<TokenLogprobs> take_logprobs() { return std::exchange(logprobs_, {}); }
  std::vector<TokenLogprobs> take_prompt_logprobs() { return std::exchange(prompt_logprobs_, {}); }
  // The states of each token, once: with `last` of those from which an accepted output was chosen, with `full` of the
  // prompt's, too.
  std::vector<HiddenRows> take_hidden() { return std::exchange(hidden_, {}); }
  std::vector<Resolution> take_resolutions();

  // Launches no further step; steps in flight still need advance(). Throws Error unless it is running.
  void pause() { pipeline_.pause(); }
  void resume();

  // Builds other graphs for the same requests, which go on where they were; the old graphs are destroyed first. Throws
  // Error, and changes nothing, unless the engine is paused and the options are in range. When building fails, resolves
  // every request as failed, and throws.
  void rebuild_graphs(const GraphOptions& graphs);
  // The same with the weights of another model of the same shape, which must outlive this. What open requests have
  // computed stays; the prefix cache is emptied when it resumes.
  void replace_weights(const DecoderModel& model);

  // Frees the device memory of graphs, activations and cache; the weights belong to the model (engine/sleep.h has
  // both), and kernels stay loaded. The prefix cache is emptied; requests submitted meanwhile wait. Throws Error, and
  // changes nothing, unless the engine is running with nothing in flight and no request admitted.
  void sleep();
  // Restores the engine as it was before sleep(), with the same graphs and as many pages. The model may have moved, and
  // its weights may still be on their way: this ends with DecoderModel::wait(). Throws Error where memory is short; the
  // engine then sleeps on.
  void wake();
  bool is_asleep() const { return slots_.is_released(); }

  // For a caller that has seen that the device is lost: every request is resolved as failed, and nothing more is
  // served.
  void fail(const std::string& message) { pipeline_.fail(message); }

  CanRun can_run(int rows) const;

  // While the engine sleeps, see StepSlots::release() for what may be asked of the slots.
  const PipelineState& pipeline() const { return pipeline_; }
  StepSlots& slots() { return slots_; }
  const StepSlots& slots() const { return slots_; }
  const EngineStats& stats() const { return stats_; }

 private:
  SchedulerOptions scheduling() const;
  std::vector<int32_t> drafts_of(const Request& request) const;
  std::string why_not_serve(const RequestSpec& spec, const Sampling& sampling, const ChoiceOptions& choice) const;

  std::vector<int32_t> adapters_in_use() const;
  void make_adapter_memory();
  void admit();

  void launch(const StepPlan& plan);
  void dispatch(const InFlightStep& step);
  void ask_for_score(int slot, const Request& request, int64_t position, int32_t step_row);
  void set_counts(const Request& request);
  void count(const StepPlan& plan);
  int64_t rows_of_plan(const StepPlan& plan) const;
  std::string overflow() const;

  void sample();
  bool chooses_again(RequestId id) const;
  OwnerFailure failure_of_owner(RequestId id, const std::function<void()>& work);
  bool choose_again(int slot, const RowPlan& row, int32_t step_row, int32_t choice_row, std::vector<MaskKey>& masks);
  RowResult chosen_again(int slot, const RowPlan& row, int32_t choice,
                         std::map<RequestId, TokenLogprobs>& logprobs) const;
  void ask_for_ends(const RowPlan& row, RowResult& first);
  void ask_for_end(RequestId id, RowResult& result);

  void commit();
  std::vector<RowResult> results_of(const InFlightStep& step, std::span<const int32_t> tokens,
                                    std::map<RequestId, TokenLogprobs>& logprobs);
  void tell_scores(int slot);
  using Taken = std::map<RequestId, int64_t>;  // tokens of a step that its requests accepted
  void tell_hidden(std::vector<HiddenRows> given, const StepPlan& plan, const Taken& taken);
  void index_tokens(std::span<const RequestId> requests);
  StepRecord record(const InFlightStep& step);

  void demand_awake(const char* doing) const;
  void tell_pages();
  void demand_paused(const char* doing) const;
  void rebuild(PipelineState::Rebuilt rebuilt);

  EngineOptions options_;
  const DecoderModel* model_;
  SchedulerOptions scheduling_;
  uint64_t seed_;
  StepSlots slots_;
  AdapterTable adapters_;
  struct AdapterMemory {
    AdapterLayout layout;
    std::shared_ptr<StagingPool> images;
  };
  std::vector<AdapterMemory> adapter_memory_;  // by rank
  PipelineState pipeline_;
  std::map<RequestId, Sampling> sampling_;                  // of those whose end was not taken
  std::map<RequestId, ChoiceOptions> choices_;              // of those that ask for something
  std::map<RequestId, int32_t> adapter_of_;                 // of those that have one and whose end was not taken
  std::array<std::vector<int32_t>, kSlots> choice_of_row_;  // of sampled rows: the row of the second choice, or -1
  // The work of a request's masks and ends, in units of WorkBudget.
  struct MaskWork {
    uint64_t expected = 0, so_far = 0;  // of the next token; of the one that is being chosen
  };
  std::map<RequestId, MaskWork> mask_work_;
  uint64_t step_mask_work_ = 0;  // of all requests since the last launch
  PromptScores scores_;
  std::vector<CommittedToken> tokens_;
  std::vector<TokenLogprobs> logprobs_, prompt_logprobs_;
  std::vector<HiddenRows> hidden_;
  std::map<RequestId, int64_t> told_hidden_;  // positions before it, of those that ask for hidden states
  Drafter drafter_;
  EngineStats stats_;
  StepTimes times_;                                               // only where somebody listens
  std::optional<std::chrono::steady_clock::time_point> drained_;  // since when nothing is in flight, with work to do
  PipelineState::Rebuilt rebuilt_ = PipelineState::Rebuilt::nothing;  // since it was paused
};

}  // namespace nodewright
