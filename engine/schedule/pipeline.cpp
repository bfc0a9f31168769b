#include "engine/schedule/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/error.h"

namespace nodewright {

std::string_view name_of(PipelineMode mode) {
  constexpr std::string_view kNames[] = {"running", "pausing", "paused", "failed"};
  return kNames[static_cast<size_t>(mode)];
}

std::string_view name_of(Schedule schedule) { return schedule == Schedule::mixed ? "mixed" : "drained"; }

PipelineState::PipelineState(KvPool pool, const PipelineOptions& options) : pool_(std::move(pool)), options_(options) {
  if (options.depth < 1 || options.depth > kSlots)
    throw Error({.doing = "make a pipeline",
                 .object = "depth",
                 .detail = fmt::format("{} is outside 1 to {}", options.depth, kSlots),
                 .fault = Fault::usage});
}

// Steps

std::string PipelineState::why_not_launch(StepKind kind) const {
  if (mode_ != PipelineMode::running) return fmt::format("the pipeline is {}", name_of(mode_));
  if (forward_) return fmt::format("the forward of step {} is not sampled", forward_->number);
  if (in_flight() >= options_.depth) return fmt::format("{} steps are in flight, as many as may be", in_flight());
  if (options_.schedule == Schedule::mixed) return "";
  if (kind == StepKind::prefill && !is_drained()) return "a prefill needs a drained pipeline";
  for (const InFlightStep* step : steps())
    if (step->plan.kind == StepKind::prefill) return fmt::format("step {} is a prefill", step->number);
  return "";
}

const InFlightStep& PipelineState::launch(StepPlan plan) {
  if (const std::string why = why_not_launch(plan.kind); !why.empty()) refuse("launch", why);
  if (plan.rows.empty()) refuse("launch", "the step has no rows");
  if (plan.bucket != 0 && plan.bucket < plan.tokens())
    refuse("launch", fmt::format("{} tokens in a bucket of {}", plan.tokens(), plan.bucket));
  std::vector<RequestId> ids;
  bool has_prompt = false;
  for (const RowPlan& row : plan.rows) {
    if (const std::string why = why_not_row(plan.kind, row, find(row.request)); !why.empty()) refuse("launch", why);
    has_prompt |= find(row.request)->phase() == RequestPhase::prefilling;
    ids.push_back(row.request);
  }
  std::ranges::sort(ids);
  if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end())
    refuse("launch", fmt::format("request {} has two rows", *twice));
  if (plan.kind == StepKind::prefill && !has_prompt) refuse("launch", "a prefill without a prompt");
  if (const int64_t missing = pages_short(plan); missing > 0) refuse("launch", fmt::format("{} pages short", missing));

  for (const RowPlan& row : plan.rows) {
    // After all that is known: nothing is shared there, and nothing to be copied. What a window leaves is given back.
    if (pool_.gives_back() || pages_missing(row) > 0)
      pool_.reserve(find(row.request)->sequence(), row.first, row.first + row.tokens);
    at(row.request).launch(row.tokens, launched_ + 1);
    prompt_turns_.begin(at(row.request).turn());
  }
  std::vector<TableChange> tables;
  for (const RowPlan& row : plan.rows) {
    const int32_t sequence = find(row.request)->sequence();
    for (int64_t group = 0; group < pool_.groups(); ++group) {
      const int64_t first = pool_.take_changed(sequence, group);
      if (first < static_cast<int64_t>(pool_.table(sequence, group).size())) tables.push_back({sequence, first, group});
    }
  }
  const int slot = *free_slot();
  pool_.launched(++launched_);
  forward_ = {launched_, slot, std::move(plan), std::exchange(copies_, {}), std::move(tables), ++submitted_, 0};
  return *forward_;
}

int64_t PipelineState::pages_missing(const RowPlan& row) const {
  return pool_.missing(find(row.request)->sequence(), row.first + row.tokens);
}

int64_t PipelineState::pages_short(const StepPlan& plan) const {
  int64_t missing = 0;
  for (const RowPlan& row : plan.rows) missing += pages_missing(row);
  return std::max<int64_t>(0, missing - pool_.available());
}

void PipelineState::revoke() {
  if (!forward_) refuse("revoke", "no forward is in flight");
  const InFlightStep step = std::move(*forward_);
  forward_.reset();
  copies_.insert(copies_.begin(), step.copies.begin(), step.copies.end());
  for (const TableChange& change : step.tables)
    if (pool_.is_open(change.sequence)) pool_.set_changed(change.sequence, change.first, change.group);
  pool_.revoked(launched_--);
  --submitted_;
  for (const RowPlan& row : step.plan.rows) {
    at(row.request).revoke(row.tokens);
    erase_if_ended(row.request);
  }
  pause_if_drained();
}

std::optional<std::vector<MaskKey>> PipelineState::masks_needed() const {
  if (!forward_) refuse("mask", "no forward is in flight");
  std::vector<MaskKey> masks;
  for (const RowPlan& row : forward_->plan.rows) {
    const Request& request = requests_.at(row.request);
    if (!row.samples || request.is_resolved() || !request.spec().constrained) continue;
    if (request.choosing() > 1) return std::nullopt;  // the token before this one is not committed
    masks.push_back({row.request, row.output});
  }
  return masks;
}

const InFlightStep& PipelineState::sample(std::span<const MaskKey> masks) {
  if (!forward_) refuse("sample", "no forward is in flight");
  const std::optional<std::vector<MaskKey>> needed = masks_needed();
  if (!needed) refuse("sample", "a constrained row's token before this one is not committed");
  for (const MaskKey& key : *needed) {
    const auto given = std::ranges::find(masks, key.request, &MaskKey::request);
    if (given == masks.end()) refuse("sample", fmt::format("request {} has no mask", key.request));
    if (*given != key)
      refuse("sample", fmt::format("the mask of request {} is for output {}, and {} comes next", key.request,
                                   given->output, key.output));
  }
  forward_->sampling = ++submitted_;
  sampled_.push_back(std::move(*forward_));
  forward_.reset();
  return sampled_.back();
}

const InFlightStep& PipelineState::start_commit() {
  if (committing_) refuse("start a commit", fmt::format("that of step {} has not finished", committing_->number));
  if (sampled_.empty()) refuse("start a commit", "no sampled step is in flight");
  committing_ = std::move(sampled_.front());
  sampled_.pop_front();
  return *committing_;
}

std::vector<CommittedToken> PipelineState::finish_commit(std::span<const RowResult> results) {
  if (!committing_) refuse("finish a commit", "none was started");
  if (results.size() != committing_->plan.rows.size())
    refuse("finish a commit", fmt::format("{} results for {} rows", results.size(), committing_->plan.rows.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    const RowPlan& row = committing_->plan.rows[i];
    if (!at(row.request).is_resolved() && results[i].behind_drafts.size() != row.drafts.size())
      refuse("finish a commit", fmt::format("{} results behind the {} drafts of request {}",
                                            results[i].behind_drafts.size(), row.drafts.size(), row.request));
  }
  const InFlightStep step = std::move(*committing_);
  committing_.reset();
  std::vector<CommittedToken> accepted;
  for (size_t i = 0; i < results.size(); ++i) {
    const RowPlan& row = step.plan.rows[i];
    Request& request = at(row.request);
    if (!request.is_resolved()) {
      const RowResult* result = &results[i];
      accept(request, row.first, row.tokens - static_cast<int64_t>(row.drafts.size()), row.samples, *result, accepted);
      for (size_t d = 0; d < row.drafts.size() && !request.is_resolved() && result->token == row.drafts[d]; ++d) {
        result = &results[i].behind_drafts[d];
        accept(request, row.first + 1 + static_cast<int64_t>(d), 1, true, *result, accepted);
      }
    }
    request.commit();
    erase_if_ended(row.request);
  }
  committed_ = step.number;
  pool_.completed(step.number);
  pause_if_drained();
  return accepted;
}

// For an unresolved request: the tokens from `first` on are computed, and `result` was chosen after them.
void PipelineState::accept(Request& request, int64_t first, int64_t tokens, bool samples, const RowResult& result,
                           std::vector<CommittedToken>& accepted) {
  if (samples && result.token < 0)
    return resolve(request, EndReason::failed,
                   !result.failure.empty()
                       ? result.failure
                       : fmt::format("the logits of output {} hold a NaN", request.outputs().size()),
                   !result.failure.empty());
  for (int64_t p = first; p < first + tokens; ++p) pool_.append(request.sequence(), {{request.token_at(p)}});
  if (!samples) return;
  const auto end = request.accept(result.token, result.completes_stop_string, result.completes_grammar);
  accepted.push_back({request.id(), result.token, end});
  if (end) resolve(request, *end, "");
}

// Modes

void PipelineState::pause() {
  if (mode_ != PipelineMode::running) refuse("pause", "it is not running");
  mode_ = PipelineMode::pausing;
  pause_if_drained();
}

void PipelineState::pause_if_drained() {
  if (mode_ == PipelineMode::pausing && is_drained()) mode_ = PipelineMode::paused;
}

void PipelineState::resume(Rebuilt rebuilt) {
  if (mode_ != PipelineMode::paused && (mode_ != PipelineMode::pausing || rebuilt != Rebuilt::nothing))
    refuse("resume", rebuilt == Rebuilt::nothing ? "it is not paused" : "steps in flight would meet what was rebuilt");
  if (rebuilt == Rebuilt::weights) pool_.drop_cache();
  if (rebuilt != Rebuilt::nothing)
    for (const RequestId id : admitted_)
      if (const int32_t sequence = find(id)->sequence(); pool_.is_open(sequence))
        for (int64_t group = 0; group < pool_.groups(); ++group) pool_.set_changed(sequence, 0, group);
  mode_ = PipelineMode::running;
}

void PipelineState::lose_pages() {
  if (mode_ != PipelineMode::paused) refuse("lose the pages", "it is not paused");
  if (!admitted_.empty()) refuse("lose the pages", "requests own some");
  pool_.drop_cache();
}

void PipelineState::fail(const std::string& message) {
  if (mode_ == PipelineMode::failed) return;
  mode_ = PipelineMode::failed;
  failure_ = message;
  pool_.completed(launched_);  // nothing runs on a lost device
  pool_.drop_cache();
  for (auto& [id, request] : requests_)
    if (!request.is_resolved()) resolve(request, EndReason::failed, message);
  forward_.reset();
  committing_.reset();
  sampled_.clear();
  copies_.clear();
  waiting_.clear();
  turns_ = {};
  prompt_turns_ = {};
  admitted_.clear();
  requests_.clear();
  committed_ = launched_;
}

// Looking

int PipelineState::in_flight() const {
  return static_cast<int>(sampled_.size()) + (forward_ ? 1 : 0) + (committing_ ? 1 : 0);
}

std::optional<int> PipelineState::free_slot() const {
  const std::vector<const InFlightStep*> taken = steps();
  for (uint64_t turn = launched_; turn < launched_ + kSlots; ++turn) {
    const int slot = static_cast<int>(turn % kSlots);
    if (std::ranges::none_of(taken, [slot](const InFlightStep* step) { return step->slot == slot; })) return slot;
  }
  return std::nullopt;
}

std::vector<const InFlightStep*> PipelineState::steps() const {
  std::vector<const InFlightStep*> all;
  if (committing_) all.push_back(&*committing_);
  for (const InFlightStep& step : sampled_) all.push_back(&step);
  if (forward_) all.push_back(&*forward_);
  return all;
}

const Request* PipelineState::find(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second;
}

std::string PipelineState::describe() const {
  const auto named = [](const char* what, const InFlightStep& step) {
    return fmt::format("; {} step {} of {} rows in slot {}", what, step.number, step.plan.rows.size(), step.slot);
  };
  std::string line = std::string(name_of(mode_));
  if (committing_) line += named("committing", *committing_);
  for (const InFlightStep& step : sampled_) line += named("sampled", step);
  if (forward_) line += named("forward of", *forward_);
  return line + fmt::format("; {} requests waiting, {} admitted", waiting_.size(), admitted_.size());
}

void PipelineState::refuse(const char* transition, const std::string& why) const {
  throw Error({.doing = transition, .object = "pipeline", .detail = why + "; state: " + describe()});
}

}  // namespace nodewright
