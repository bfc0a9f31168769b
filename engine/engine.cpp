#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/option_range.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

int64_t pages_of(const EngineOptions& options) {
  if (options.pages > 0 || options.memory_limit > 0) return options.pages;
  return options.max_batch * pages_for(options.max_context);
}

const EngineOptions& checked(const EngineOptions& options, const ModelConfig& config) {
  check_option("max batch", options.max_batch, 1, kMostRows);
  check_option("chunk", options.chunk, 1, kMostRows);
  check_option("max context", options.max_context, 1, config.max_position);
  check_option("pages", options.pages, 0, INT32_MAX);
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

BucketSet buckets_of(const EngineOptions& options) {
  return options.buckets.empty() ? BucketSet::up_to(std::max(options.max_batch, options.chunk))
                                 : BucketSet(options.buckets);
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

SchedulerOptions scheduling_of(const EngineOptions& options) {
  return {.decode_buckets = up_to(buckets_of(options), options.max_batch),
          .prefill_buckets = up_to(buckets_of(options), options.chunk),
          .mixed = options.mixed,
          .allow_eager = options.allow_eager};
}

StepSlotsOptions slots_of(const EngineOptions& options) {
  return {.buckets = buckets_of(options),
          .eager_rows = eager_rows_of(options),
          .max_context = options.max_context,
          .sequences = options.max_batch,
          .pages = pages_of(options),
          .memory_limit = options.memory_limit,
          .mode = options.mode,
          .policy = options.policy,
          .built = options.built};
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
  check_option("max context", max_context, 1, next.max_position);
}

std::string why_not(const Sampling& sampling) {
  if (!(sampling.temperature >= 0 && sampling.temperature <= 1e4f))
    return fmt::format("a temperature of {} is outside 0 to 10000", sampling.temperature);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return fmt::format("a top_p of {} is outside 0 to 1, 0 excluded", sampling.top_p);
  if (sampling.top_k < 0) return fmt::format("a top_k of {} is negative", sampling.top_k);
  return "";
}

}  // namespace

Engine::Engine(Device& device, KernelCache& kernels, const DecoderModel& model, const EngineOptions& options)
    : options_(checked(options, model.config())),
      model_(&model),
      scheduling_(scheduling_of(options)),
      slots_(device, kernels, model, slots_of(options)),
      pipeline_(KvPool({.pages = slots_.cache().pages(),
                        .page_tokens = kPageTokens,
                        .sequences = options.max_batch,
                        .prefix_cache = options.prefix_cache}),
                {.max_context = options.max_context, .depth = options.depth, .reserve = options.reserve}) {}

PipelineState::Submitted Engine::submit(RequestSpec spec, const Sampling& sampling) {
  const int64_t vocab = model_->config().vocab;
  for (const int32_t token : spec.prompt)
    if (token < 0 || token >= vocab)
      return {std::nullopt, fmt::format("token {} of the prompt: the vocabulary has {} tokens", token, vocab)};
  if (std::string reason = why_not(sampling); !reason.empty()) return {std::nullopt, std::move(reason)};
  if (spec.constrained) return {std::nullopt, "it is constrained, and this engine takes no masks"};
  PipelineState::Submitted submitted = pipeline_.submit(std::move(spec));
  if (submitted.id) sampling_.emplace(*submitted.id, sampling);
  return submitted;
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
    case Selection::Action::sample:  // which the graph that was launched does, too
      pipeline_.sample();
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
  for (const Resolution& resolution : resolutions) sampling_.erase(resolution.request);
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
  EngineOptions options = options_;
  options.buckets = graphs.buckets;
  options.mode = graphs.mode;
  options.policy = graphs.policy;
  options_ = checked(options, model_->config());
  scheduling_ = scheduling_of(options_);
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
    slots_.rebuild(*model_, slots_of(options_));
  } catch (const Error& error) {
    pipeline_.fail(error.what());
    throw;
  }
  rebuilt_ = rebuilt;
}

void Engine::launch(const StepPlan& plan) {
  try {
    dispatch(pipeline_.launch(plan));
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
  const int64_t rows = plan.tokens(), of_plan = falls_back ? eager_rows_of(options_) : plan.bucket;
  BucketUse& use = stats_.buckets[{static_cast<int>(of_plan), falls_back ? RunMode::eager : options_.mode}];
  ++use.steps;
  use.rows += rows;
  use.exact += rows == of_plan;
  stats_.most_pages = std::max(stats_.most_pages, pipeline_.pool().owned_pages());
  ++stats_.step_rows[static_cast<int>(rows)];
  stats_.padded_rows += of_plan - rows;
  stats_.prefill_steps += plan.kind == StepKind::prefill;
  if (!falls_back) return;
  // The same words for every number of rows, so that they can be counted.
  const std::string reason =
      fmt::format("more rows than the largest bucket has, {}", scheduling_.decode_buckets.largest());
  if (++stats_.fallbacks[reason] == 1 && options_.fell_back) options_.fell_back(reason);
}

// The rows whose next token is chosen come first, each the last token of its request in this step.
void Engine::dispatch(const InFlightStep& step) {
  const StepInputs& in = slots_.inputs(step.slot, step.plan.bucket);
  const auto sampled = std::ranges::count_if(step.plan.rows, &RowPlan::samples);
  int64_t next_sampled = 0, next_other = sampled;
  for (const RowPlan& row : step.plan.rows) {
    const Request& request = *pipeline_.find(row.request);
    RowInputs inputs{.sequence = request.sequence(),
                     .output = row.output,
                     .sampling = sampling_.at(row.request),
                     .pages = pipeline_.pool().table(request.sequence())};
    for (inputs.position = row.first; inputs.position < row.first + row.tokens; ++inputs.position) {
      const bool is_prompt = inputs.position < request.prompt_tokens();
      inputs.token = request.knows(inputs.position) ? request.token_at(inputs.position) : -1;
      stats_.prompt_tokens += is_prompt;
      const bool chooses = row.samples && inputs.position == row.first + row.tokens - 1;
      write_row(in, chooses ? next_sampled++ : next_other++, inputs);
    }
  }
  slots_.launch({.slot = step.slot,
                 .bucket = step.plan.bucket,
                 .live = static_cast<int32_t>(step.plan.tokens()),
                 .sampled = static_cast<int32_t>(sampled),
                 .copies = step.copies});
}

void Engine::commit() {
  const InFlightStep& step = pipeline_.start_commit();
  std::vector<RowResult> results;
  try {
    const std::span<const int32_t> tokens = slots_.wait(step.slot, options_.step_timeout_ms);
    size_t next = 0;
    for (const RowPlan& row : step.plan.rows) {
      results.push_back({.token = row.samples ? tokens[next++] : 0});
      stats_.zombie_rows += pipeline_.find(row.request)->is_resolved();
    }
  } catch (const Error& error) {
    return pipeline_.fail(error.what());
  }
  const std::vector<CommittedToken> accepted = pipeline_.finish_commit(results);
  tokens_.insert(tokens_.end(), accepted.begin(), accepted.end());
  stats_.output_tokens += static_cast<int64_t>(accepted.size());
  if (pipeline_.is_drained()) drained_ = std::chrono::steady_clock::now();
}

}  // namespace nodewright
