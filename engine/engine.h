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

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/hidden_rows.h"
#include "engine/device/step_slots.h"
#include "engine/engine_stats.h"
#include "engine/sampling/choice_options.h"
#include "engine/schedule/drafts.h"
#include "engine/schedule/scheduler.h"
#include "engine/step_record.h"

namespace nodewright {

// Usual tokens of a step with a prompt's: enough that a GPU takes its time by the token, and on the CPU driver what
// takes about a second.
inline constexpr int kStepTokens = 512, kStepTokensOnCpu = 64;

struct EngineOptions {
  int max_batch = 8;  // requests served at once, and rows of the largest decode step
  // Tokens of a step with a prompt's: first the rows that decode, then chunks of prompts, at least one token. So no row
  // waits longer for its next token than such a step takes. 0: 512, on the CPU driver 64; no more than the largest
  // bucket where buckets are given.
  int step_tokens = 0;
  // drained: prompts go apart, each step of them alone in flight, as soon as nothing else is (the Kestrel document's
  // form).
  Schedule schedule = Schedule::mixed;
  // Rows of the graphs; empty: BucketSet::up_to(max_batch), and for prompts and drafts some up to the most they need.
  std::vector<int> buckets;
  bool exact_buckets = false;  // without such a list, every size up to max_batch: no step of decoding rows is padded
  int64_t max_context = 0;     // tokens of prompt and outputs
  // Pages of the cache; 0: enough for max_batch requests of max_context tokens or, with a memory limit, what it leaves.
  int64_t pages = 0;
  uint64_t memory_limit = 0;       // bytes of weights, state, graphs and pages; 0: none
  bool prefix_cache = true;        // prompts that begin alike share pages
  Reserve reserve = Reserve::all;  // pages of a request when it is admitted
  bool choices = false;            // requests may ask for ChoiceOptions: memory and a small graph a bucket more
  HiddenStates hidden = HiddenStates::none;  // the most that requests may ask for: a buffer and a node a graph more
  int depth = kSlots;                        // steps in flight; 1: no pipelining
  int64_t step_timeout_ms = 0;               // a step that takes longer fails the engine; 0: it is waited for
  Numerics numerics = Numerics::fast;  // invariant: a request's tokens do not depend on the buckets it passes through
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
  bool allow_eager = false;  // more rows than the largest bucket are launched node by node, not refused
  std::function<void(const BuiltBucket&)> built;             // progress of the start; may be empty
  std::function<void(const std::string& reason)> fell_back;  // once for each reason; may be empty
  std::function<void(const StepRecord&)> stepped;            // each committed step, in order; may be empty
  // Rows from which on steps are library products (models/plan/step_shape.h); 0: never.
  int64_t products_from = kProductsFromRows;
  std::shared_ptr<const Tuning> tuning;  // of this device and model (models/tuning/step_tuning.h), or none
  PrefillForm prefill = PrefillForm::graph;
  // Tokens that a decode step checks for a request beyond the one it chooses, guessed from what its own tokens repeat
  // (engine/schedule/drafts.h); 0: none. Not for requests whose ChoiceOptions shape their choice.
  int speculate = 0;
  // Of what requests without a seed draw, each numbers of its own. None: another one for every engine.
  std::optional<uint64_t> seed;
  // Guesses instead, of which `speculate` are used; depends on the request alone. Empty: n-grams.
  std::function<std::vector<int32_t>(const Request&)> drafts = {};
};

// How a decode step of so many rows would be run.
struct CanRun {
  bool can = false;
  int bucket = 0;  // 0: none, or eager
  RunMode mode = RunMode::explicit_;
  std::string reason;  // why this bucket, why eager, why not
};

// What a rebuild may change.
struct GraphOptions {
  std::vector<int> buckets;  // as in EngineOptions
  bool exact_buckets = false;
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
  HiddenStates hidden = HiddenStates::none;  // no less than open requests ask for
};

class Engine {
 public:
  // Throws Error where an option is out of range or contradicts another, naming both, and as StepSlots does. Device,
  // kernels and model must outlive this.
  Engine(Device& device, KernelCache& kernels, const DecoderModel& model, const EngineOptions& options);

  // Accepts the request, or says why not: a prompt that does not fit, a token outside the vocabulary, sampling out of
  // range, what EngineOptions::choices makes no room for, an engine that has failed.
  PipelineState::Submitted submit(RequestSpec spec, const Sampling& sampling = {}, ChoiceOptions choice = {});
  // As many outputs of one prompt as there are `choices`, in their order: all are accepted, or none. The prompt is
  // computed once: the others wait for the first of them to do it, then share its pages and copy the one that the
  // prompt ends in; where the first ends before there is room for another, that one finds what is left in the prefix
  // cache. Each draws numbers of its own: with a seed, the first by that seed, as alone, and output i by
  // derived_seed(seed, i). Only the first gives the prompt's log probabilities and hidden states `full`; then the
  // others, which may not come from the cache, are told `last`.
  struct SubmittedAll {
    std::vector<RequestId> ids;  // empty: refused
    std::string reason;
  };
  SubmittedAll submit_n(RequestSpec spec, const Sampling& sampling, std::vector<ChoiceOptions> choices);
  // False when it had ended.
  bool cancel(RequestId id) { return pipeline_.cancel(id); }

  // Does one thing: admits a request, launches a step, or waits for the tokens of the oldest. False when nothing is to
  // be done. When the driver fails, every request is resolved as failed with its message, and nothing more is served.
  bool advance();

  // Since the last call.
  std::vector<CommittedToken> take_tokens() { return std::exchange(tokens_, {}); }
  std::vector<TokenLogprobs> take_logprobs() { return std::exchange(logprobs_, {}); }
  std::vector<TokenLogprobs> take_prompt_logprobs() { return std::exchange(prompt_logprobs_, {}); }
  // Each token's once: with `last` those that chose an output that was accepted, with `full` the prompt's, too.
  std::vector<HiddenRows> take_hidden() { return std::exchange(hidden_, {}); }
  std::vector<Resolution> take_resolutions();

  // Launches no more; what is in flight is still to be advanced. Throws Error unless it is running.
  void pause() { pipeline_.pause(); }
  void resume();

  // Other graphs for the same requests, which go on where they were: destroys what was built, builds anew. Throws
  // Error, and changes nothing, unless the engine is paused and the options are in range. When building fails, resolves
  // every request as failed, and throws.
  void rebuild_graphs(const GraphOptions& graphs);
  // The same with the weights of another model of the same shape, which must outlive this. What open requests have
  // computed stays; the prefix cache is emptied when it resumes.
  void replace_weights(const DecoderModel& model);

  CanRun can_run(int rows) const;

  const PipelineState& pipeline() const { return pipeline_; }
  StepSlots& slots() { return slots_; }
  const StepSlots& slots() const { return slots_; }
  const EngineStats& stats() const { return stats_; }

 private:
  std::string why_not_serve(const RequestSpec& spec, const Sampling& sampling, const ChoiceOptions& choice) const;
  void launch(const StepPlan& plan);
  void dispatch(const InFlightStep& step);
  void sample();
  bool chooses_again(RequestId id) const;
  bool choose_again(int slot, const RowPlan& row, int32_t step_row, int32_t choice_row, std::vector<MaskKey>& masks);
  void ask_for_score(int slot, const Request& request, int64_t position, int32_t step_row);
  void commit();
  void count(const StepPlan& plan);
  int64_t rows_of_plan(const StepPlan& plan) const;
  std::string overflow() const;
  StepRecord record(const InFlightStep& step);
  void demand_paused(const char* doing) const;
  void rebuild(PipelineState::Rebuilt rebuilt);
  void tell_scores(int slot);
  using Taken = std::map<RequestId, int64_t>;  // tokens of a step that its requests accepted
  void tell_hidden(std::vector<HiddenRows> given, const StepPlan& plan, const Taken& taken);
  RowResult chosen_again(int slot, const RowPlan& row, int32_t choice,
                         std::map<RequestId, TokenLogprobs>& logprobs) const;
  void ask_for_end(RequestId id, RowResult& result);
  void set_counts(const Request& request);
  SchedulerOptions scheduling() const;
  std::vector<int32_t> drafts_of(const Request& request) const;
  void index_tokens(std::span<const RequestId> requests);
  void ask_for_ends(const RowPlan& row, RowResult& first);

  EngineOptions options_;
  const DecoderModel* model_;
  SchedulerOptions scheduling_;
  uint64_t seed_;
  StepSlots slots_;
  PipelineState pipeline_;
  std::map<RequestId, Sampling> sampling_;                  // of those whose end was not taken
  std::map<RequestId, ChoiceOptions> choices_;              // of those that ask for something
  std::array<std::vector<int32_t>, kSlots> choice_of_row_;  // of sampled rows: the row of the second choice, or -1
  // Of the last step of each slot: what slots_ were asked, and of which token of a prompt.
  struct PromptToken {
    RequestId request = 0;
    int64_t position = 0;
  };
  struct AskedScores {
    std::vector<ScoredRow> rows;
    std::vector<PromptToken> tokens;
  };
  std::array<AskedScores, kSlots> scores_;
  std::vector<CommittedToken> tokens_;
  std::vector<TokenLogprobs> logprobs_, prompt_logprobs_;
  std::vector<HiddenRows> hidden_;
  // What has been told of a request: its prompt's log probabilities, and its hidden states, before these positions.
  struct Told {
    int64_t score = 1, hidden = 0;
  };
  std::map<RequestId, Told> told_;          // of those that ask for either
  std::map<RequestId, NgramIndex> ngrams_;  // of those that may draft, where n-grams do; behind their tokens at first
  EngineStats stats_;
  StepTimes times_;                                               // only where somebody listens
  std::optional<std::chrono::steady_clock::time_point> drained_;  // since when nothing is in flight, with work to do
  PipelineState::Rebuilt rebuilt_ = PipelineState::Rebuilt::nothing;  // since it was paused
};

}  // namespace nodewright
