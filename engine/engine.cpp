#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/option_range.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

int64_t pages_of(const EngineOptions& options) {
  return options.pages > 0 ? options.pages : options.max_batch * pages_for(options.max_context);
}

const EngineOptions& checked(const EngineOptions& options, const ModelConfig& config) {
  check_option("max batch", options.max_batch, 1, kMostRows);
  check_option("chunk", options.chunk, 1, kMostRows);
  check_option("max context", options.max_context, 1, config.max_position);
  check_option("pages", options.pages, 0, INT32_MAX);
  for (const int bucket : options.buckets) check_option("buckets", bucket, 1, kMostRows);
  if (!options.buckets.empty() && std::ranges::max(options.buckets) < options.max_batch)
    throw Error({.doing = "use option",
                 .object = "buckets",
                 .detail = fmt::format("the largest is {}, and max batch is {}", std::ranges::max(options.buckets),
                                       options.max_batch),
                 .advice = fmt::format("a bucket of {}, or a max batch of {}", options.max_batch,
                                       std::ranges::max(options.buckets)),
                 .fault = Fault::usage});
  return options;
}

BucketSet buckets_of(const EngineOptions& options) {
  return options.buckets.empty() ? BucketSet::up_to(std::max(options.max_batch, options.chunk))
                                 : BucketSet(options.buckets);
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
    : vocab_(model.config().vocab),
      scheduling_{.decode_buckets = up_to(buckets_of(checked(options, model.config())), options.max_batch),
                  .prefill_buckets = up_to(buckets_of(options), options.chunk),
                  .mixed = options.mixed},
      pipeline_(KvPool({.pages = pages_of(options),
                        .page_tokens = kPageTokens,
                        .sequences = options.max_batch,
                        .prefix_cache = options.prefix_cache}),
                {.max_context = options.max_context, .depth = options.depth}),
      slots_(device, kernels, model,
             {.buckets = buckets_of(options),
              .max_context = options.max_context,
              .sequences = options.max_batch,
              .pages = pages_of(options),
              .mode = options.mode,
              .policy = options.policy,
              .built = options.built,
              .products_from = options.products_from,
              .prefill = options.prefill}) {}

PipelineState::Submitted Engine::submit(RequestSpec spec, const Sampling& sampling) {
  for (const int32_t token : spec.prompt)
    if (token < 0 || token >= vocab_)
      return {std::nullopt, fmt::format("token {} of the prompt: the vocabulary has {} tokens", token, vocab_)};
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
      return false;
    case Selection::Action::admit:
      pipeline_.admit();
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

void Engine::launch(const StepPlan& plan) {
  try {
    dispatch(pipeline_.launch(plan));
  } catch (const Error& error) {
    return pipeline_.fail(error.what());
  }
  ++stats_.launches[plan.bucket];
  stats_.padded_rows += plan.bucket - plan.tokens();
  stats_.prefill_steps += plan.kind == StepKind::prefill;
}

// The rows whose next token is chosen come first, each the last token of its request in this step.
void Engine::dispatch(const InFlightStep& step) {
  const StepInputs& in = slots_.inputs(step.slot, step.plan.bucket);
  const auto sampled = std::ranges::count_if(step.plan.rows, &RowPlan::samples);
  int64_t next_sampled = 0, next_other = sampled;
  for (const RowPlan& row : step.plan.rows) {
    const Request& request = *pipeline_.find(row.request);
    const std::vector<int32_t>& prompt = request.spec().prompt;
    RowInputs inputs{.sequence = request.sequence(),
                     .output = row.output,
                     .sampling = sampling_.at(row.request),
                     .pages = pipeline_.pool().table(request.sequence())};
    for (inputs.position = row.first; inputs.position < row.first + row.tokens; ++inputs.position) {
      const bool is_prompt = inputs.position < request.prompt_tokens();
      inputs.token = is_prompt ? prompt[static_cast<size_t>(inputs.position)] : -1;
      stats_.prompt_tokens += is_prompt;
      const bool chooses = row.samples && inputs.position == row.first + row.tokens - 1;
      write_row(in, chooses ? next_sampled++ : next_other++, inputs);
    }
  }
  slots_.launch({.slot = step.slot,
                 .bucket = step.plan.bucket,
                 .live = static_cast<int32_t>(step.plan.tokens()),
                 .sampled = static_cast<int32_t>(sampled),
                 .copies = step.copies,
                 .prompt = step.plan.kind == StepKind::prefill});
}

void Engine::commit() {
  const InFlightStep& step = pipeline_.start_commit();
  std::vector<RowResult> results;
  try {
    const std::span<const int32_t> tokens = slots_.wait(step.slot);
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
}

}  // namespace nodewright
