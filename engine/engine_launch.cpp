// A step of an engine goes to the device: its rows, the tables that have changed, and what is counted of it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_parts.h"
#include "models/step/lanes.h"
#include "runtime/error.h"

namespace nodewright {

void Engine::launch(const StepPlan& plan) {
  step_mask_work_ = 0;
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

// The rows whose next token is chosen come first: each the last token of its request in this step, and before drafts
// the one that they follow. Of a bucket in two lanes the first tokens of a prompt have its last rows.
void Engine::dispatch(const InFlightStep& step) {
  const StepInputs& in = slots_.inputs(step.slot, step.plan.bucket);
  const int64_t sampled = step.plan.chosen();
  RowOrder order(step.plan.tokens(), sampled, slots_.lane_rows(step.plan.bucket));
  bool adapted = false;
  scores_.begin(step.slot);
  for (const RowPlan& row : step.plan.rows) {
    const Request& request = *pipeline_.find(row.request);
    RowInputs inputs{.sequence = request.sequence(), .output = row.output, .sampling = sampling_.at(row.request)};
    if (const int32_t adapter = request.spec().adapter_id; adapter != 0) {
      inputs.adapter = adapters_.use(adapter, slots_);
      adapted = true;
    }
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
      const int64_t step_row = chooses ? order.of_chosen() : order.of_other();
      ask_for_score(step.slot, request, inputs.position, static_cast<int32_t>(step_row));
      write_row(in, step_row, inputs);
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
                 .adapted = adapted,
                 .hidden = hidden,
                 .scored = scores_.rows(step.slot)});
}

// Requests the score of the token after `position`, where its request wants one.
void Engine::ask_for_score(int slot, const Request& request, int64_t position, int32_t step_row) {
  if (!request.spec().scores_prompt || request.is_resolved()) return;
  scores_.ask(slot, request, position, step_row, choices_.at(request.id()).prompt_logprobs);
}

// What its penalties count, told to a device on which no step in flight chooses for it.
void Engine::set_counts(const Request& request) {
  const auto choice = choices_.find(request.id());
  if (choice == choices_.end() || !choice->second.penalises()) return;
  slots_.set_counts(request.sequence(), token_counts(request.spec().prompt, request.outputs(), model_->config().vocab));
}

}  // namespace nodewright
