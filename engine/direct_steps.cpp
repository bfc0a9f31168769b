#include "engine/direct_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/option_range.h"
#include "graph/timing/stopwatch.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// Only memory limits it.
constexpr int64_t kMostStepsOfLaunch = 65536;

// In a launch's pinned tokens: the row had ended before.
constexpr int32_t kNothingChosen = -2;

[[noreturn]] void refuse_nan(int32_t sequence) {
  throw Error({.doing = "choose a token for sequence",
               .object = std::to_string(sequence),
               .detail = "its logits hold a NaN",
               .advice = "look for NaN or infinite values in the checkpoint"});
}

DirectStepsOptions checked(DirectStepsOptions options, const ModelConfig& config) {
  StepSlotsOptions& slots = options.slots;
  check_option("bucket", options.bucket, 1, kMostRows);
  check_option("prefill rows", options.prefill_rows, 1, kMostRows);
  check_option("max context", slots.max_context, 1, config.longest_context());
  check_option("steps per launch", slots.steps.most, 1, kMostStepsOfLaunch);
  if (slots.adapters.any() && slots.steps.several())
    throw Error({.doing = "use option",
                 .object = "steps per launch",
                 .detail = fmt::format("it is {}, and sequences with adapters take 1", slots.steps.most),
                 .fault = Fault::usage});
  slots.buckets = BucketSet({static_cast<int>(options.bucket), static_cast<int>(options.prefill_rows)});
  slots.pages = slots.sequences * pages_for(slots.max_context);
  return options;
}

}  // namespace

DirectSteps::DirectSteps(const ModelPlace& place, const DirectStepsOptions& options)
    : options_(checked(options, place.model->config())),
      device_(place, options_.slots, nullptr),
      step_state_(device_.state(0, static_cast<int>(options.bucket))),
      prefill_state_(device_.state(0, static_cast<int>(options.prefill_rows))),
      sequences_(static_cast<size_t>(options_.slots.sequences)),
      chosen_(static_cast<size_t>(options.bucket)) {
  const StepSlotsOptions& slots = options_.slots;
  device_.make_adapters(slots);
  device_.make_cache(slots, slots.pages);
  built_.free_before = device_.device().free_bytes();
  Stopwatch watch;
  const auto plan_of = [&](const DecodeState& state, DecodePurpose purpose, bool adapted) {
    return device_.step_plan(device_.cache(), static_cast<int>(state.rows), state, slots.policy, adapted, purpose);
  };
  plan_ = plan_of(step_state_, DecodePurpose::step, false);
  for (const bool adapted : {false, true}) {
    if (adapted && !slots.adapters.any()) continue;
    steps_.try_emplace(adapted, adapted ? plan_of(step_state_, DecodePurpose::step, true) : plan_, slots.mode,
                       device_.compute());
    prefills_.try_emplace(adapted, plan_of(prefill_state_, DecodePurpose::prefill, adapted), slots.mode,
                          device_.compute());
  }
  last_run_ = &steps_.at(false);
  built_.ms = watch.lap_ms();
  built_.free_after = device_.device().free_bytes();
  std::vector<int32_t> pages(static_cast<size_t>(pages_for(slots.max_context)));
  for (int32_t sequence = 0; sequence < slots.sequences; ++sequence) {
    std::iota(pages.begin(), pages.end(), sequence * static_cast<int32_t>(pages.size()));
    device_.write_table(sequence, pages);
  }
  place.model->wait();
}

void DirectSteps::check(int32_t sequence, std::span<const int32_t> tokens, int64_t more) const {
  const int64_t vocab = device_.config().vocab, context = options_.slots.max_context;
  for (const int32_t token : tokens)
    if (token < 0 || token >= vocab)
      throw Error({.doing = "use token",
                   .object = std::to_string(token),
                   .detail = fmt::format("the vocabulary has {} tokens", vocab),
                   .fault = Fault::usage});
  if (length(sequence) + more > context)
    throw Error({.doing = "extend sequence",
                 .object = std::to_string(sequence),
                 .detail = fmt::format("{} tokens do not fit in a context of {}", length(sequence) + more, context),
                 .advice = "a longer --max-context, a shorter prompt or fewer tokens",
                 .fault = Fault::usage});
}

// One step over tokens of a sequence.
void DirectSteps::extend(int32_t sequence, std::span<const int32_t> tokens, const DecodeState& state, PlanRun& run,
                         bool with_logits) {
  Sequence& s = at(sequence);
  const StepInputs& in = state.host_inputs;
  in.n_live.data[0] = static_cast<int32_t>(tokens.size());
  in.n_sampled.data[0] = with_logits ? in.n_live.data[0] : 0;
  in.keeps_logits.data[0] = with_logits ? 1 : 0;
  for (int64_t i = 0; i < std::ssize(tokens); ++i)
    write_row(in, i,
              {.token = tokens[static_cast<size_t>(i)],
               .position = s.length + i,
               .sequence = sequence,
               .output = s.outputs,
               .adapter = s.adapter,
               .sampling = {}});
  run.launch();
  device_.compute().synchronize();
  s.length += std::ssize(tokens);
}

void DirectSteps::append(int32_t sequence, std::span<const int32_t> tokens) {
  check(sequence, tokens, std::ssize(tokens));
  while (!tokens.empty()) {
    const auto chunk = tokens.first(std::min(tokens.size(), static_cast<size_t>(options_.prefill_rows)));
    extend(sequence, chunk, prefill_state_, prefills_.at(at(sequence).adapter >= 0), false);
    tokens = tokens.subspan(chunk.size());
  }
}

void DirectSteps::append_with_logits(int32_t sequence, std::span<const int32_t> tokens) {
  check_option("tokens of a step", std::ssize(tokens), 1, std::min(options_.bucket, options_.slots.most_sampled));
  check(sequence, tokens, std::ssize(tokens));
  extend(sequence, tokens, step_state_, steps_.at(at(sequence).adapter >= 0), true);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (step_state_.host_tokens.data[i] < 0) refuse_nan(sequence);
}

std::span<const std::vector<int32_t>> DirectSteps::launch(std::span<const StepRow> rows) {
  check_option("rows of a step", std::ssize(rows), 1, options_.bucket);
  const LaunchSteps& steps = options_.slots.steps;
  const StepInputs& in = step_state_.host_inputs;
  in.n_live.data[0] = in.n_sampled.data[0] = static_cast<int32_t>(rows.size());
  in.keeps_logits.data[0] = options_.keep_logits ? 1 : 0;
  if (steps.several()) in.steps_done.data[0] = 0;
  bool adapted = false;
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const StepRow& row = rows[static_cast<size_t>(i)];
    const Sequence& s = at(row.sequence);
    check(row.sequence, row.token ? std::span(&*row.token, 1) : std::span<const int32_t>(), row.most);
    write_row(in, i,
              {.token = row.token.value_or(-1),
               .position = s.length,
               .sequence = row.sequence,
               .output = s.outputs,
               .adapter = s.adapter,
               .sampling = row.sampling});
    if (steps.several()) write_end(in, i, row.most, row.stop_ids);
    adapted |= s.adapter >= 0;
  }
  const std::span<int32_t> tokens(step_state_.host_tokens.data, step_state_.host_tokens.count);
  std::ranges::fill(tokens, kNothingChosen);
  last_run_ = &steps_.at(adapted);
  last_run_->launch();
  device_.compute().synchronize();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<int32_t>& chosen = chosen_[i];
    chosen.clear();
    for (size_t at = i; at < tokens.size() && tokens[at] != kNothingChosen; at += chosen_.size())
      chosen.push_back(tokens[at]);
    if (chosen.empty() || chosen.back() < 0) refuse_nan(rows[i].sequence);
    Sequence& s = at(rows[i].sequence);
    s.length += std::ssize(chosen);
    s.outputs += static_cast<int32_t>(chosen.size());
  }
  return std::span(chosen_).first(rows.size());
}

void DirectSteps::read_logits(int64_t row, std::span<float> logits) const {
  const auto first = static_cast<uint64_t>(row * step_state_.logits_stride);
  read_view(device_.device(), logits, step_state_.logits.subview(first, logits.size()), "logits");
}

}  // namespace nodewright
