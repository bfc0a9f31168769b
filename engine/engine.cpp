#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/option_range.h"
#include "engine/sampling/sampling_range.h"
#include "engine/sampling/seeds.h"
#include "engine/schedule/draft_counts.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

KvPoolOptions pool_of(const EngineOptions& options, const ModelConfig& config, int64_t pages) {
  return {.pages = pages,
          .page_tokens = kPageTokens,
          .sequences = options.max_batch,
          .prefix_cache = options.prefix_cache,
          .window = config.window_of_all(),
          .chunk = options.step_tokens,
          .chunks_follow = options.schedule == Schedule::mixed && options.depth > 1,
          .side_window = config.page_groups() > 1 ? config.window : 0,
          .longest = options.max_context};
}

// The most that a request may own at once.
int64_t pages_of_request(const EngineOptions& options, const ModelConfig& config) {
  return KvPool(pool_of(options, config, 0)).most_pages(options.max_context);
}

int64_t pages_of(const EngineOptions& options, const ModelConfig& config) {
  if (options.pages > 0 || options.memory_limit > 0) return options.pages;
  return options.max_batch * pages_of_request(options, config);
}

// Of a request in a step. What repeats for longer is taken in the next one.
constexpr int kMostDrafts = 16;

const EngineOptions& checked(const EngineOptions& options, const ModelConfig& config) {
  check_option("max batch", options.max_batch, 1, kMostRows);
  check_option("step tokens", options.step_tokens, 0, kMostRows);
  check_option("max context", options.max_context, 1, config.max_position);
  check_option("pages", options.pages, 0, INT32_MAX);
  check_option("speculate", options.speculate, 0, kMostDrafts);
  check_option("step timeout", options.step_timeout_ms, 0, INT32_MAX);
  for (const int bucket : options.buckets) check_option("buckets", bucket, 1, kMostRows);
  if (!options.buckets.empty() && std::ranges::max(options.buckets) < options.max_batch && !options.allow_eager)
    throw Error({.doing = "use option",
                 .object = "buckets",
                 .detail = fmt::format("the largest is {}, and max batch is {}", std::ranges::max(options.buckets),
                                       options.max_batch),
                 .advice = fmt::format("a bucket of {}, a max batch of {}, or allow eager for steps without a graph",
                                       options.max_batch, std::ranges::max(options.buckets)),
                 .fault = Fault::usage});
  return options;
}

// Past so many rows a step no longer reads weights alone: a draft is not nearly free there.
constexpr int64_t kDraftRows = 64;

// The most tokens that decode steps may have, and those for which there are graphs by default.
int64_t drafted_rows_of(const EngineOptions& options) { return int64_t{options.max_batch} * (1 + options.speculate); }
int decode_rows_of(const EngineOptions& options) {
  return static_cast<int>(std::max<int64_t>(options.max_batch, std::min(kDraftRows, drafted_rows_of(options))));
}

// By default every size that a batch may have, padded or not, and past it some for prompts and drafts.
BucketSet buckets_of(const EngineOptions& options) {
  if (!options.buckets.empty()) return BucketSet(options.buckets);
  const BucketSet of_batches =
      options.exact_buckets ? BucketSet::every(options.max_batch) : BucketSet::up_to(options.max_batch);
  const auto [fewer, more] = std::minmax({options.step_tokens, decode_rows_of(options)});
  return of_batches.extended_to(fewer).extended_to(more);
}

// Rows of the plan that runs what is past the largest bucket.
int eager_rows_of(const EngineOptions& options) {
  return options.max_batch > buckets_of(options).largest() ? options.max_batch : 0;
}

// The buckets that steps of at most `most` tokens use: up to the one that holds so many.
BucketSet up_to(const BucketSet& buckets, int most) {
  std::vector<int> sizes;
  for (const int size : buckets.sizes()) {
    sizes.push_back(size);
    if (size >= most) break;
  }
  return BucketSet(std::move(sizes));
}

// For a batch and, where there is one, for its drafts: no bucket that is larger than both.
BucketSet decode_buckets_of(const EngineOptions& options) {
  const BucketSet buckets = buckets_of(options);
  int most = options.max_batch;
  for (const int size : buckets.sizes())
    if (size <= decode_rows_of(options)) most = std::max(most, size);
  return up_to(buckets, most);
}

// With what the options leave to the device.
EngineOptions complete(EngineOptions options, const ModelConfig& config, const Device& device) {
  checked(options, config);
  if (options.step_tokens == 0) {
    const int64_t usual = device.driver().is_cpu() ? kStepTokensOnCpu : kStepTokens;
    options.step_tokens = static_cast<int>(std::min(usual, options.max_batch * options.max_context));
    if (!options.buckets.empty())
      options.step_tokens = std::min(options.step_tokens, std::ranges::max(options.buckets));
  }
  return options;
}

int64_t most_sampled_of(const EngineOptions& options) {
  const int64_t drafted = std::min<int64_t>(decode_buckets_of(options).largest(), drafted_rows_of(options));
  return std::max<int64_t>(options.max_batch, drafted);
}

SchedulerOptions scheduling_of(const EngineOptions& options) {
  return {.decode_buckets = decode_buckets_of(options),
          .prefill_buckets = up_to(buckets_of(options), std::max(options.step_tokens, options.max_batch)),
          .schedule = options.schedule,
          .allow_eager = options.allow_eager,
          .most_sampled = most_sampled_of(options),
          .step_tokens = options.step_tokens};
}

StepSlotsOptions slots_of(const EngineOptions& options, const ModelConfig& config) {
  return {.buckets = buckets_of(options),
          .eager_rows = eager_rows_of(options),
          .max_context = options.max_context,
          .sequences = options.max_batch,
          .most_sampled = most_sampled_of(options),
          .pages = pages_of(options, config),
          .window_pages = KvPool(pool_of(options, config, 0)).window_pages().total(),
          .request_pages = pages_of_request(options, config),
          .memory_limit = options.memory_limit,
          .numerics = options.numerics,
          .choices = options.choices,
          .hidden = options.hidden,
          .tuning = options.tuning,
          .mode = options.mode,
          .policy = options.policy,
          .built = options.built,
          .products_from = options.products_from,
          .prefill = options.prefill};
}

// What the cache holds, and what requests were checked against, must fit the new weights.
void check_same_shape(const ModelConfig& now, const ModelConfig& next, int64_t max_context) {
  const auto same = [](const char* name, int64_t is, int64_t was) {
    if (is != was)
      throw Error({.doing = "replace weights",
                   .object = name,
                   .detail = fmt::format("it is {}, and the engine was made for {}", is, was),
                   .advice = "an engine of its own for a model of another shape",
                   .fault = Fault::usage});
  };
  same("layers", next.layers, now.layers);
  same("kv heads", next.kv_heads, now.kv_heads);
  same("head_dim", next.head_dim, now.head_dim);
  same("vocabulary", next.vocab, now.vocab);
  same("window of all layers", next.window_of_all(), now.window_of_all());
  same("layers with a window", next.sliding_layers(), now.sliding_layers());
  same("window", next.window, now.window);
  check_option("max context", max_context, 1, next.max_position);
}

// What `work` throws; empty when it does not.
template <class Work>
std::string failure_of(const Work& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "it threw no std::exception";
  }
}

void check_gives(HiddenStates hidden, const Request& request) {
  if (request.spec().hidden <= hidden) return;
  throw Error({.doing = "rebuild graphs",
               .object = "hidden",
               .detail = fmt::format("it is {}, and request {} asks for {} hidden states", name_of(hidden),
                                     request.id(), name_of(request.spec().hidden)),
               .advice = fmt::format("hidden states {}, or cancel the request", name_of(request.spec().hidden)),
               .fault = Fault::usage});
}

TokenLogprobs recorded(const ChoiceOutputs& out, int32_t choice, RequestId request, int64_t output, int top) {
  TokenLogprobs told{request, output, out.tokens.data[choice], out.logprob.data[choice], {}};
  for (int64_t k = choice * kMostLogprobs, end = k + top; k < end; ++k)
    if (const int32_t token = out.top_tokens.data[k]; token >= 0)
      told.top.emplace_back(token, out.top_logprobs.data[k]);
  return told;
}

}  // namespace

Engine::Engine(Device& device, KernelCache& kernels, const DecoderModel& model, const EngineOptions& options)
    : options_(complete(options, model.config(), device)),
      model_(&model),
      scheduling_(scheduling()),
      seed_(options.seed ? *options.seed : random_seed()),
      slots_(device, kernels, model, slots_of(options_, model.config())),
      pipeline_(KvPool(pool_of(options_, model.config(), slots_.cache().pages())), {.max_context = options.max_context,
                                                                                    .depth = options.depth,
                                                                                    .reserve = options.reserve,
                                                                                    .schedule = options.schedule}) {}

SchedulerOptions Engine::scheduling() const {
  SchedulerOptions options = scheduling_of(options_);
  if (options_.speculate > 0) options.drafts = [this](const Request& request) { return drafts_of(request); };
  return options;
}

// A row that is chosen again, by its mask or its penalties, has no drafts: they would be those of another output.
std::vector<int32_t> Engine::drafts_of(const Request& request) const {
  const auto choice = choices_.find(request.id());
  if (choice != choices_.end() && choice->second.shapes()) return {};
  if (!options_.drafts) {
    const auto ngrams = ngrams_.find(request.id());
    const bool is_there = ngrams != ngrams_.end() && ngrams->second.size() == request.known_tokens();
    return is_there ? ngrams->second.draft(options_.speculate) : std::vector<int32_t>();
  }
  std::vector<int32_t> drafts = options_.drafts(request);
  drafts.resize(std::min(drafts.size(), static_cast<size_t>(options_.speculate)));
  const int64_t vocab = model_->config().vocab;
  const auto unknown = std::ranges::find_if(drafts, [vocab](int32_t token) { return token < 0 || token >= vocab; });
  drafts.erase(unknown, drafts.end());
  return drafts;
}

// Whatever the state; empty where nothing speaks against it.
std::string Engine::why_not_serve(const RequestSpec& spec, const Sampling& sampling,
                                  const ChoiceOptions& choice) const {
  const int64_t vocab = model_->config().vocab;
  for (const int32_t token : spec.prompt)
    if (token < 0 || token >= vocab)
      return fmt::format("token {} of the prompt: the vocabulary has {} tokens", token, vocab);
  if (const std::optional<SamplingFault> fault = sampling_fault(sampling))
    return fmt::format("a {} of {}", fault->field, fault->detail);
  if (std::string reason = why_not(choice, spec.stop_ids, vocab); !reason.empty()) return reason;
  if (spec.constrained && !choice.follows_outputs()) return "it is constrained, and nothing gives its masks";
  if (choice.needs_choices() && !options_.choices)
    return "it asks for more than temperature, min_p, top_k and top_p, and this engine has no choices";
  if (spec.hidden > options_.hidden)
    return fmt::format(
        "it asks for {} hidden states, and the engine's graphs give {}: they are to be built with hidden "
        "states {}",
        name_of(spec.hidden), name_of(options_.hidden), name_of(spec.hidden));
  return "";
}

PipelineState::Submitted Engine::submit(RequestSpec spec, const Sampling& sampling, ChoiceOptions choice) {
  if (std::string reason = why_not_serve(spec, sampling, choice); !reason.empty())
    return {std::nullopt, std::move(reason)};
  spec.constrained = choice.follows_outputs();
  spec.scores_prompt = choice.prompt_logprobs >= 0;
  PipelineState::Submitted submitted = pipeline_.submit(std::move(spec));
  if (!submitted.id) return submitted;
  Sampling& own = sampling_.emplace(*submitted.id, sampling).first->second;
  if (!own.seed) own.seed = derived_seed(seed_, static_cast<uint64_t>(*submitted.id));
  if (choice.needs_choices() || choice.ends) choices_.emplace(*submitted.id, std::move(choice));
  return submitted;
}

Engine::SubmittedAll Engine::submit_n(RequestSpec spec, const Sampling& sampling, std::vector<ChoiceOptions> choices) {
  if (choices.empty()) return {{}, "it asks for no output"};
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) choices[i].prompt_logprobs = -1;
    if (std::string reason = why_not_serve(spec, sampling, choices[i]); !reason.empty()) return {{}, std::move(reason)};
  }
  SubmittedAll all;
  for (size_t i = 0; i < choices.size(); ++i) {
    Sampling own = sampling;
    if (i > 0 && own.seed) own.seed = derived_seed(*own.seed, i);
    const PipelineState::Submitted one = submit(spec, own, std::move(choices[i]));
    if (!one.id) return {{}, one.reason};  // of the state: then of the first
    all.ids.push_back(*one.id);
    spec.like = all.ids.front();
    spec.hidden = std::min(spec.hidden, HiddenStates::last);
  }
  return all;
}

bool Engine::advance() {
  const Selection next = select_next(pipeline_, scheduling_);
  switch (next.action) {
    case Selection::Action::idle:
      drained_.reset();
      return false;
    case Selection::Action::admit:
      pipeline_.admit();
      break;
    case Selection::Action::preempt:
      pipeline_.preempt();
      break;
    case Selection::Action::launch:
      launch(next.step);
      break;
    case Selection::Action::sample:
      sample();
      break;
    case Selection::Action::start_commit:
      commit();
      break;
  }
#ifndef NDEBUG
  pipeline_.check();
#endif
  return true;
}

std::vector<Resolution> Engine::take_resolutions() {
  std::vector<Resolution> resolutions = pipeline_.take_resolutions();
  for (const Resolution& resolution : resolutions) {
    sampling_.erase(resolution.request);
    choices_.erase(resolution.request);
    told_.erase(resolution.request);
    ngrams_.erase(resolution.request);
  }
  return resolutions;
}

CanRun Engine::can_run(int rows) const {
  if (rows > options_.max_batch)
    return {.reason = fmt::format("{} rows, and at most {} requests are served at once", rows, options_.max_batch)};
  const BucketChoice choice = scheduling_.decode_buckets.choose(rows);
  if (choice.fit != BucketChoice::Fit::none) return {true, choice.bucket, options_.mode, choice.reason};
  return {rows > 0 && options_.allow_eager, 0, RunMode::eager, choice.reason};
}

void Engine::resume() { pipeline_.resume(std::exchange(rebuilt_, PipelineState::Rebuilt::nothing)); }

void Engine::rebuild_graphs(const GraphOptions& graphs) {
  demand_paused("rebuild graphs");
  for (const RequestId id : pipeline_.waiting()) check_gives(graphs.hidden, *pipeline_.find(id));
  for (const RequestId id : pipeline_.admitted()) check_gives(graphs.hidden, *pipeline_.find(id));
  EngineOptions options = options_;
  options.hidden = graphs.hidden;
  options.buckets = graphs.buckets;
  options.exact_buckets = graphs.exact_buckets;
  options.mode = graphs.mode;
  options.policy = graphs.policy;
  options_ = checked(options, model_->config());
  scheduling_ = scheduling();
  rebuild(std::max(rebuilt_, PipelineState::Rebuilt::graphs));
}

void Engine::replace_weights(const DecoderModel& model) {
  demand_paused("replace weights");
  check_same_shape(model_->config(), model.config(), options_.max_context);
  model_ = &model;
  rebuild(PipelineState::Rebuilt::weights);
}

void Engine::demand_paused(const char* doing) const {
  if (pipeline_.mode() != PipelineMode::paused)
    throw Error({.doing = doing,
                 .object = "engine",
                 .detail = pipeline_.describe(),
                 .advice = "pause(), and advance() until nothing is in flight"});
}

void Engine::rebuild(PipelineState::Rebuilt rebuilt) {
  try {
    slots_.rebuild(*model_, slots_of(options_, model_->config()));
    for (const RequestId id : pipeline_.admitted()) set_counts(*pipeline_.find(id));
  } catch (const Error& error) {
    pipeline_.fail(error.what());
    throw;
  }
  rebuilt_ = rebuilt;
}

// What its penalties count, told to a device on which no step in flight chooses for it.
void Engine::set_counts(const Request& request) {
  const auto choice = choices_.find(request.id());
  if (choice == choices_.end() || !choice->second.penalises()) return;
  slots_.set_counts(request.sequence(), token_counts(request.spec().prompt, request.outputs(), model_->config().vocab));
}

void Engine::launch(const StepPlan& plan) {
  try {
    const InFlightStep& step = pipeline_.launch(plan);
    dispatch(step);
    if (options_.stepped) times_.launched(step.slot);
  } catch (const Error& error) {
    return pipeline_.fail(error.what());
  }
  count(plan);
  if (drained_) {
    const std::chrono::duration<double, std::milli> gap = std::chrono::steady_clock::now() - *drained_;
    ++stats_.idle_gaps;
    stats_.idle_ms += gap.count();
    stats_.longest_idle_ms = std::max(stats_.longest_idle_ms, gap.count());
  }
  drained_.reset();
}

void Engine::count(const StepPlan& plan) {
  const bool falls_back = plan.bucket == 0;
  const int64_t rows = plan.tokens(), of_plan = rows_of_plan(plan);
  BucketUse& use = stats_.buckets[{static_cast<int>(of_plan), falls_back ? RunMode::eager : options_.mode}];
  ++use.steps;
  use.rows += rows;
  use.exact += rows == of_plan;
  stats_.most_pages = std::max(stats_.most_pages, pipeline_.pool().owned_pages());
  ++stats_.step_rows[static_cast<int>(rows)];
  stats_.padded_rows += of_plan - rows;
  stats_.prefill_steps += plan.kind == StepKind::prefill;
  if (!falls_back) return;
  const std::string reason = overflow();
  if (++stats_.fallbacks[reason] == 1 && options_.fell_back) options_.fell_back(reason);
}

int64_t Engine::rows_of_plan(const StepPlan& plan) const {
  return plan.bucket == 0 ? eager_rows_of(options_) : plan.bucket;
}

// The same words for every number of rows, so that they can be counted.
std::string Engine::overflow() const {
  return fmt::format("more rows than the largest bucket has, {}", scheduling_.decode_buckets.largest());
}

// Of the step whose tokens have just come.
StepRecord Engine::record(const InFlightStep& step) {
  StepRecord record = record_rows(pipeline_, step);
  record.us = times_.came(step.slot);
  record.bucket = rows_of_plan(step.plan);
  record.chosen_again =
      std::ranges::count_if(choice_of_row_[static_cast<size_t>(step.slot)], [](int32_t choice) { return choice >= 0; });
  const bool in_form = step.plan.kind == StepKind::prefill && options_.prefill != PrefillForm::graph;
  if (step.plan.bucket == 0)
    record.run = to_string(RunMode::eager), record.reason = overflow();
  else if (in_form)
    record.run = to_string(options_.prefill), record.reason = fmt::format("prompts are run {}", record.run);
  else if (options_.mode != RunMode::explicit_)
    record.run = to_string(options_.mode), record.reason = fmt::format("the mode is {}", record.run);
  else
    record.run = "graph";
  return record;
}

// The rows whose next token is chosen come first: each the last token of its request in this step, and before drafts
// the one that they follow.
void Engine::dispatch(const InFlightStep& step) {
  const StepInputs& in = slots_.inputs(step.slot, step.plan.bucket);
  const int64_t sampled = step.plan.chosen();
  int64_t next_sampled = 0, next_other = sampled;
  scores_[static_cast<size_t>(step.slot)] = {};
  for (const RowPlan& row : step.plan.rows) {
    const Request& request = *pipeline_.find(row.request);
    RowInputs inputs{.sequence = request.sequence(), .output = row.output, .sampling = sampling_.at(row.request)};
    // With the end of its prompt, before anything in flight has chosen for it, and so counted.
    if (row.samples && row.first < request.prefill_end()) set_counts(request);
    for (inputs.position = row.first; inputs.position < row.first + row.tokens; ++inputs.position) {
      const bool is_prompt = inputs.position < request.prompt_tokens();
      inputs.token = request.knows(inputs.position) ? request.token_at(inputs.position) : -1;
      stats_.prompt_tokens += is_prompt;
      const int64_t left = row.first + row.tokens - inputs.position;
      const bool chooses = left <= row.chosen();
      if (const auto behind = static_cast<int64_t>(row.drafts.size()) + 1 - left; !row.drafts.empty() && behind > 0) {
        inputs.token = row.drafts[static_cast<size_t>(behind - 1)];
        inputs.output = row.output + behind;
      }
      int64_t& step_row = chooses ? next_sampled : next_other;
      ask_for_score(step.slot, request, inputs.position, static_cast<int32_t>(step_row));
      write_row(in, step_row++, inputs);
    }
  }
  std::vector<TablePages> tables;
  for (const auto& [sequence, first, group] : step.tables)
    tables.push_back(
        {sequence, first, pipeline_.pool().table(sequence, group).subspan(static_cast<size_t>(first)), group});
  const auto hidden =
      options_.hidden == HiddenStates::none ? 0 : static_cast<int32_t>(hidden_rows_needed(pipeline_, step.plan));
  slots_.launch({.slot = step.slot,
                 .bucket = step.plan.bucket,
                 .live = static_cast<int32_t>(step.plan.tokens()),
                 .sampled = static_cast<int32_t>(sampled),
                 .copies = step.copies,
                 .tables = tables,
                 .prompt = step.plan.kind == StepKind::prefill,
                 .chooses_again = std::ranges::any_of(step.plan.rows,
                                                      [&](const RowPlan& row) { return chooses_again(row.request); }),
                 .hidden = hidden,
                 .scored = scores_[static_cast<size_t>(step.slot)].rows});
}

bool Engine::chooses_again(RequestId id) const {
  const auto choice = choices_.find(id);
  return choice != choices_.end() && choice->second.shapes();
}

// The second choice of the forward's rows, in the order of the rows.
void Engine::sample() {
  const InFlightStep& step = *pipeline_.forward();
  const int slot = step.slot;
  std::vector<int32_t>& choice_of = choice_of_row_[static_cast<size_t>(slot)];
  choice_of.clear();
  int32_t step_row = 0, choices = 0;
  std::vector<MaskKey> masks;
  for (const RowPlan& row : step.plan.rows) {
    if (!row.samples) continue;
    const bool again = choose_again(slot, row, step_row, choices, masks);
    step_row += static_cast<int32_t>(row.chosen());
    choice_of.push_back(again ? choices++ : -1);
    choice_of.resize(static_cast<size_t>(step_row), -1);
  }
  try {
    pipeline_.sample(masks);
    slots_.sample(slot, choices);
  } catch (const Error& error) {
    pipeline_.fail(error.what());
  }
}

// False where nothing is to be chosen again: the request asks for nothing, or has ended, perhaps just now.
bool Engine::choose_again(int slot, const RowPlan& row, int32_t step_row, int32_t choice_row,
                          std::vector<MaskKey>& masks) {
  const auto choice = choices_.find(row.request);
  const Request& request = *pipeline_.find(row.request);
  if (choice == choices_.end() || !choice->second.shapes() || request.is_resolved()) return false;
  const ChoiceInputs& in = slots_.choices(slot);
  const ChoiceOptions& options = choice->second;
  if (options.follows_outputs())
    masks.push_back({row.request, static_cast<int64_t>(request.outputs().size())});  // of what it is made from
  if (options.allow) {
    const std::span<uint32_t> mask = cleared_mask(in, choice_row);
    const std::string failure = failure_of([&] { options.allow(request.outputs(), mask); });
    if (!failure.empty()) {
      pipeline_.fail_request(row.request, fmt::format("the mask of output {}: {}", row.output, failure));
      return false;
    }
  }
  write_choice(in, choice_row,
               {.step_row = step_row,
                .sequence = request.sequence(),
                .output = row.output,
                .sampling = sampling_.at(row.request),
                .options = options,
                .stop_ids = request.spec().stop_ids,
                .outputs = request.outputs()});
  return true;
}

void Engine::commit() {
  const InFlightStep& step = pipeline_.start_commit();
  const std::vector<int32_t>& choice_of = choice_of_row_[static_cast<size_t>(step.slot)];
  std::vector<RowResult> results;
  std::map<RequestId, TokenLogprobs> logprobs;
  std::optional<StepRecord> told;
  try {
    const std::span<const int32_t> tokens = slots_.wait(step.slot, options_.step_timeout_ms);
    if (options_.stepped) told = record(step);
    tell_scores(step.slot);
    size_t next = 0;
    for (const RowPlan& row : step.plan.rows) {
      results.emplace_back();
      if (row.samples) {
        RowResult& result = results.back();
        const int32_t choice = choice_of[next];
        result.token = tokens[next++];
        if (choice >= 0) result = chosen_again(step.slot, row, choice, logprobs);
        for (size_t d = 0; d < row.drafts.size(); ++d) result.behind_drafts.push_back({.token = tokens[next++]});
        ask_for_ends(row, result);
      }
      stats_.zombie_rows += pipeline_.find(row.request)->is_resolved();
    }
  } catch (const Error& error) {
    return pipeline_.fail(error.what());
  }
  std::map<RequestId, int64_t> drafted;  // by the requests that have not ended
  for (const RowPlan& row : step.plan.rows)
    if (!row.drafts.empty() && !pipeline_.find(row.request)->is_resolved())
      drafted[row.request] = static_cast<int64_t>(row.drafts.size());
  std::vector<RequestId> requests;
  for (const RowPlan& row : step.plan.rows) requests.push_back(row.request);
  std::vector<HiddenRows> hidden;
  StepPlan plan;
  if (options_.hidden != HiddenStates::none) {
    plan = step.plan;
    hidden = hidden_of(pipeline_, plan, slots_.hidden(step.slot), model_->config().hidden);
  }
  const std::vector<CommittedToken> accepted = pipeline_.finish_commit(results);
  Taken taken;
  for (const CommittedToken& token : accepted) ++taken[token.request];
  tell_hidden(std::move(hidden), plan, taken);
  index_tokens(requests);
  const DraftCounts drafts = count_drafts(drafted, accepted);
  stats_.drafted += drafts.drafted;
  stats_.accepted_drafts += drafts.accepted;
  for (const CommittedToken& token : accepted)
    if (const auto found = logprobs.find(token.request); found != logprobs.end())
      logprobs_.push_back(std::move(found->second));
  tokens_.insert(tokens_.end(), accepted.begin(), accepted.end());
  stats_.output_tokens += static_cast<int64_t>(accepted.size());
  if (pipeline_.is_drained()) drained_ = std::chrono::steady_clock::now();
  if (!told) return;
  told->waiting = static_cast<int64_t>(pipeline_.waiting().size());
  told->admitted = static_cast<int64_t>(pipeline_.admitted().size());
  told->free_pages = pipeline_.pool().options().pages - pipeline_.pool().owned_pages();
  options_.stepped(*told);
}

RowResult Engine::chosen_again(int slot, const RowPlan& row, int32_t choice,
                               std::map<RequestId, TokenLogprobs>& logprobs) const {
  const ChoiceOutputs& out = slots_.chosen(slot);
  RowResult result{.token = out.tokens.data[choice]};
  if (out.kept.data[choice] == 0) {
    result.token = -1;
    result.failure =
        fmt::format("nothing may be chosen as output {}: its mask and biases deny every token", row.output);
  }
  const auto asked = choices_.find(row.request);
  if (asked == choices_.end() || asked->second.logprobs < 0) return result;
  logprobs.emplace(row.request, recorded(out, choice, row.request, row.output, asked->second.logprobs));
  return result;
}

// Of the token behind `position`, where the prompt has one, somebody waits for it and it has not been told: a prompt
// that was preempted is computed again.
void Engine::ask_for_score(int slot, const Request& request, int64_t position, int32_t step_row) {
  const int64_t next = position + 1;
  if (!request.spec().scores_prompt || request.is_resolved()) return;
  if (next >= request.prompt_tokens() || next < told_[request.id()].score) return;
  AskedScores& asked = scores_[static_cast<size_t>(slot)];
  asked.rows.push_back({step_row, request.token_at(next), choices_.at(request.id()).prompt_logprobs});
  asked.tokens.push_back({request.id(), next});
}

void Engine::tell_scores(int slot) {
  const std::vector<PromptToken>& asked = scores_[static_cast<size_t>(slot)].tokens;
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& [id, position] = asked[i];
    if (pipeline_.find(id)->is_resolved()) continue;
    const auto [out, row] = slots_.score(slot, i);
    if (out.tokens.data[row] < 0) {
      pipeline_.fail_request(id, fmt::format("the logits behind token {} of the prompt hold a NaN", position - 1));
      continue;
    }
    told_[id].score = position + 1;
    prompt_logprobs_.push_back(recorded(out, row, id, position, choices_.at(id).prompt_logprobs));
  }
}

// After a commit: of what its step gave, what the requests accepted and have not been told.
void Engine::tell_hidden(std::vector<HiddenRows> given, const StepPlan& plan, const Taken& taken) {
  auto of_plan = plan.rows.begin();  // in the same order
  for (HiddenRows& rows : given) {
    of_plan = std::ranges::find(of_plan, plan.rows.end(), rows.request, &RowPlan::request);
    const RowPlan& row = *of_plan;
    const int64_t took = taken.contains(rows.request) ? taken.at(rows.request) : 0;
    int64_t end = row.first + row.tokens;
    if (row.samples) end = took == 0 ? row.first : end - static_cast<int64_t>(row.drafts.size()) - 1 + took;
    int64_t& told = told_[rows.request].hidden;
    trim(rows, told, end);
    if (rows.rows == 0) continue;
    told = end;
    hidden_.push_back(std::move(rows));
  }
}

// Tokens that one commit adds to an index at most: a chunk's and more, in a fraction of a millisecond. A long prompt
// that was found in the cache is there some steps later, and until then has no drafts.
constexpr int64_t kMostIndexed = 1024;

// After a commit of rows of these requests: of those that may draft what n-grams repeat.
void Engine::index_tokens(std::span<const RequestId> requests) {
  if (options_.speculate == 0 || options_.drafts) return;
  for (const RequestId id : requests) {
    const Request* request = pipeline_.find(id);
    const auto choice = choices_.find(id);
    if (request == nullptr || request->is_resolved() || (choice != choices_.end() && choice->second.shapes())) continue;
    NgramIndex& index = ngrams_[id];
    const int64_t end = std::min(request->known_tokens(), index.size() + kMostIndexed);
    while (index.size() < end) index.append(request->token_at(index.size()));
  }
}

// Of the row's tokens those that the request will accept.
void Engine::ask_for_ends(const RowPlan& row, RowResult& first) {
  const std::vector<int32_t>& stop_ids = pipeline_.find(row.request)->spec().stop_ids;
  RowResult* result = &first;
  for (size_t d = 0;; ++d) {
    ask_for_end(row.request, *result);
    const bool ends =
        result->completes_stop_string || result->completes_grammar || std::ranges::count(stop_ids, result->token) > 0;
    if (ends || d == row.drafts.size() || result->token != row.drafts[d]) return;
    result = &first.behind_drafts[d];
  }
}

// What the request's owner says about the end that the token brings.
void Engine::ask_for_end(RequestId id, RowResult& result) {
  const auto choice = choices_.find(id);
  const Request& request = *pipeline_.find(id);
  if (choice == choices_.end() || !choice->second.ends || request.is_resolved() || result.token < 0) return;
  if (std::ranges::count(request.spec().stop_ids, result.token) > 0) return;
  const std::string failure = failure_of([&] {
    const std::optional<EndReason> end = choice->second.ends(result.token);
    result.completes_stop_string = end == EndReason::stop_string;
    result.completes_grammar = end == EndReason::complete;
  });
  if (!failure.empty())
    pipeline_.fail_request(id, fmt::format("the end after output {}: {}", request.outputs().size(), failure));
}

}  // namespace nodewright
