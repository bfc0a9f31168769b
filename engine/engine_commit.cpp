// The tokens of a step have come: its requests accept some of them, and report these.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/schedule/draft_counts.h"
#include "runtime/error.h"

namespace nodewright {

void Engine::commit() {
  const InFlightStep& step = pipeline_.start_commit();
  std::vector<RowResult> results;
  std::map<RequestId, TokenLogprobs> logprobs;
  std::optional<StepRecord> told;
  try {
    const std::span<const int32_t> tokens = slots_.wait(step.slot, options_.step_timeout_ms);
    if (options_.stepped) told = record(step);
    tell_scores(step.slot);
    results = results_of(step, tokens, logprobs);
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

// The result of each row of the step, in order; requested log probabilities go to `logprobs`.
std::vector<RowResult> Engine::results_of(const InFlightStep& step, std::span<const int32_t> tokens,
                                          std::map<RequestId, TokenLogprobs>& logprobs) {
  const std::vector<int32_t>& choice_of = choice_of_row_[static_cast<size_t>(step.slot)];
  std::vector<RowResult> results;
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
  return results;
}

void Engine::tell_scores(int slot) {
  const std::span<const PromptScores::PromptToken> asked = scores_.tokens(slot);
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& [id, position] = asked[i];
    if (pipeline_.find(id)->is_resolved()) continue;
    TokenScore score = slots_.score(slot, i);
    if (score.token < 0) {
      pipeline_.fail_request(id, fmt::format("the logits behind token {} of the prompt hold a NaN", position - 1));
      continue;
    }
    scores_.set_told(asked[i]);
    prompt_logprobs_.push_back({id, position, score.token, score.logprob, std::move(score.top)});
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
    int64_t& told = told_hidden_[rows.request];
    trim(rows, told, end);
    if (rows.rows == 0) continue;
    told = end;
    hidden_.push_back(std::move(rows));
  }
}

// After a commit of rows of these requests: of those that may draft what n-grams repeat.
void Engine::index_tokens(std::span<const RequestId> requests) {
  if (!drafter_.uses_ngrams()) return;
  for (const RequestId id : requests)
    if (const Request* request = pipeline_.find(id); request && !request->is_resolved() && !chooses_again(id))
      drafter_.index_tokens(*request);
}

// The record of the step whose tokens have just arrived.
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

}  // namespace nodewright
