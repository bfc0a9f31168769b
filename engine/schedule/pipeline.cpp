#include "engine/schedule/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/error.h"

namespace nodewright {

std::string_view name_of(PipelineMode mode) {
  switch (mode) {
    case PipelineMode::running:
      return "running";
    case PipelineMode::pausing:
      return "pausing";
    case PipelineMode::paused:
      return "paused";
    case PipelineMode::failed:
      return "failed";
  }
  return "?";
}

std::string_view name_of(Schedule schedule) { return schedule == Schedule::mixed ? "mixed" : "drained"; }

int64_t StepPlan::tokens() const {
  int64_t sum = 0;
  for (const RowPlan& row : rows) sum += row.tokens;
  return sum;
}

int64_t StepPlan::chosen() const {
  int64_t sum = 0;
  for (const RowPlan& row : rows) sum += row.chosen();
  return sum;
}

PipelineState::PipelineState(KvPool pool, const PipelineOptions& options) : pool_(std::move(pool)), options_(options) {
  if (options.depth < 1 || options.depth > kSlots)
    throw Error({.doing = "make a pipeline",
                 .object = "depth",
                 .detail = fmt::format("{} is outside 1 to {}", options.depth, kSlots),
                 .fault = Fault::usage});
}

// Requests

PipelineState::Submitted PipelineState::submit(RequestSpec spec) {
  if (mode_ == PipelineMode::failed) return {std::nullopt, "the engine has failed: " + failure_};
  if (std::string reason = Request::why_not(spec, options_.max_context); !reason.empty()) return {std::nullopt, reason};
  if (static_cast<int64_t>(waiting_.size()) >= options_.max_waiting)
    return {std::nullopt, fmt::format("{} requests are waiting, the most that may", waiting_.size())};
  Request request(last_id_ + 1, std::move(spec), options_.max_context);
  if (const int64_t needed = pool_.most_pages(request.reserved_length()); needed > pool_.options().pages)
    return {std::nullopt, fmt::format("{} tokens need {} pages, and the cache has {}", request.reserved_length(),
                                      needed, pool_.options().pages)};
  requests_.emplace(++last_id_, std::move(request));
  waiting_.push_back(last_id_);
  return {last_id_, ""};
}

bool PipelineState::cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.is_resolved()) return false;
  resolve(found->second, EndReason::cancelled, "");
  erase_if_ended(id);
  return true;
}

bool PipelineState::fail_request(RequestId id, std::string message) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.is_resolved()) return false;
  resolve(found->second, EndReason::failed, std::move(message));
  erase_if_ended(id);
  return true;
}

std::string PipelineState::why_not_admit() const {
  if (mode_ != PipelineMode::running) return fmt::format("the pipeline is {}", name_of(mode_));
  if (waiting_.empty()) return "no request waits";
  const Request& first = requests_.at(waiting_.front());
  if (const Request* like = shares_with(first); like && pool_.known(like->sequence()) < first.prompt_tokens() - 1)
    return fmt::format("request {} shares the pages of request {}, whose prompt is not computed", first.id(),
                       like->id());
  if (std::string why = why_no_pages(0); !why.empty()) return why;
  // A page for each that runs: or the request would be preempted by the next step, and be admitted again, for ever.
  const auto running = std::ranges::count_if(admitted_, [this](RequestId id) { return !find(id)->is_resolved(); });
  if (options_.reserve == Reserve::all || running == 0 || why_no_pages(running).empty()) return "";
  return fmt::format("{} tokens would leave less than a page for each of {} requests", admitted_length(first), running);
}

std::string PipelineState::why_no_pages(int64_t spare) const {
  const Request& first = requests_.at(waiting_.front());
  const int64_t length = admitted_length(first);
  auto& [id, tokens, found] = first_waiting();
  if (const Request* like = shares_with(first); like && pool_.can_fork(like->sequence(), first.prompt_tokens()))
    return pool_.why_not_fork(first.prompt_tokens(), length, spare);
  return pool_.why_not_open(tokens, length, found, spare);
}

// The request whose pages it shares from the start; null where that has ended, and where more than the prompt is known.
const Request* PipelineState::shares_with(const Request& request) const {
  const Request* like = request.spec().like == 0 ? nullptr : find(request.spec().like);
  const bool shares = like && like->sequence() >= 0 && !like->is_resolved() && request.outputs().empty() &&
                      !request.spec().computes_all();
  return shares ? like : nullptr;
}

PipelineState::FirstWaiting& PipelineState::first_waiting() const {
  const Request& first = requests_.at(waiting_.front());
  if (first_waiting_.id != first.id() || static_cast<int64_t>(first_waiting_.tokens.size()) != first.known_tokens())
    first_waiting_ = {first.id(), first.tokens(), {.searches = !first.spec().computes_all()}};
  return first_waiting_;
}

int64_t PipelineState::admitted_length(const Request& request) const {
  return options_.reserve == Reserve::all ? request.reserved_length()
                                          : std::min(request.reserved_length(), request.known_tokens() + 1);
}

bool PipelineState::admit() {
  if (!why_not_admit().empty()) return false;
  Request& first = at(waiting_.front());
  auto& [id, tokens, found] = first_waiting();
  const Request* like = shares_with(first);
  const std::optional<KvPool::Opened> opened = like && pool_.can_fork(like->sequence(), first.prompt_tokens())
                                                   ? pool_.fork(like->sequence(), tokens, admitted_length(first))
                                                   : pool_.open(tokens, admitted_length(first), found);
  if (!opened) return false;
  first_waiting_ = {};
  first.admit(opened->sequence, opened->start);
  copies_.insert(copies_.end(), opened->copies.begin(), opened->copies.end());
  admitted_.push_back(first.id());
  waiting_.pop_front();
  return true;
}

void PipelineState::preempt() {
  if (options_.reserve == Reserve::all) refuse("preempt", "pages are reserved for all that a request may write");
  if (mode_ != PipelineMode::running) refuse("preempt", "it is not running");
  const auto last =
      std::find_if(admitted_.rbegin(), admitted_.rend(), [this](RequestId id) { return !find(id)->is_resolved(); });
  if (last == admitted_.rend()) refuse("preempt", "no request has pages");
  const RequestId id = *last;
  Request& request = at(id);
  if (request.in_flight() > 0) refuse("preempt", fmt::format("request {} is in a step in flight", id));
  pool_.close(request.sequence());
  request.preempt();
  std::erase(admitted_, id);
  waiting_.push_front(id);
  ++preemptions_;
}

// Each request passes here once. Its pages stay its own until every launch made so far has completed.
void PipelineState::resolve(Request& request, EndReason reason, std::string message) {
  request.resolve(reason);
  if (request.sequence() < 0) {
    std::erase(waiting_, request.id());
  } else if (reason == EndReason::failed) {
    pool_.close_and_forget(request.sequence());
  } else {
    pool_.close(request.sequence());
  }
  resolutions_.push_back({request.id(), reason, request.outputs(), std::move(message), request.found_tokens()});
}

void PipelineState::erase_if_ended(RequestId id) {
  const auto found = requests_.find(id);
  if (found->second.phase() != RequestPhase::ended) return;
  std::erase(admitted_, id);
  requests_.erase(found);
}

std::vector<Resolution> PipelineState::take_resolutions() { return std::exchange(resolutions_, {}); }

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
    if (const std::string why = why_not_row(plan, row); !why.empty()) refuse("launch", why);
    has_prompt |= find(row.request)->phase() == RequestPhase::prefilling;
    ids.push_back(row.request);
  }
  std::ranges::sort(ids);
  if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end())
    refuse("launch", fmt::format("request {} has two rows", *twice));
  if (plan.kind == StepKind::prefill && !has_prompt) refuse("launch", "a prefill without a prompt");
  if (const int64_t missing = pages_short(plan); missing > 0) refuse("launch", fmt::format("{} pages short", missing));

  for (const RowPlan& row : plan.rows) {
    // Behind all that is known: nothing is shared there, and nothing to be copied. What a window leaves is given back.
    if (pool_.gives_back() || pages_missing(row) > 0)
      pool_.reserve(find(row.request)->sequence(), row.first, row.first + row.tokens);
    at(row.request).launch(row.tokens, launched_ + 1);
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

std::string PipelineState::why_not_row(const StepPlan& plan, const RowPlan& row) const {
  const Request* request = find(row.request);
  if (!request) return fmt::format("there is no request {}", row.request);
  if (row.first != request->computed())
    return fmt::format("the row of request {} begins at {}, and it has computed {}", row.request, row.first,
                       request->computed());
  if (row.output != request->next_output())
    return fmt::format("the row of request {} chooses output {}, and {} comes next", row.request, row.output,
                       request->next_output());
  if (request->phase() == RequestPhase::prefilling) {
    if (plan.kind != StepKind::prefill) return fmt::format("request {} is not prefilled", row.request);
    if (!row.drafts.empty()) return fmt::format("request {} has drafts before its first output", row.request);
    const bool is_last = row.tokens == request->prompt_left();
    if (row.tokens < 1 || row.tokens > request->prompt_left() || row.samples != is_last)
      return fmt::format("{} tokens of request {}, {}, and {} of its prompt are left", row.tokens, row.request,
                         row.samples ? "sampled" : "not sampled", request->prompt_left());
    return "";
  }
  if (!request->can_decode())
    return fmt::format("request {} is {}, with {} of {} outputs and {} steps in flight", row.request,
                       name_of(request->phase()), request->outputs().size(), request->most_outputs(),
                       request->in_flight());
  const auto drafts = static_cast<int64_t>(row.drafts.size());
  if (row.tokens != 1 + drafts || !row.samples)
    return fmt::format("request {} decodes one token a step, and {} drafts", row.request, drafts);
  if (drafts > 0 && plan.kind == StepKind::prefill)
    return fmt::format("request {} has drafts in a prefill", row.request);
  if (drafts > 0 && request->spec().constrained)
    return fmt::format("request {} is constrained, and has drafts, whose masks are not known", row.request);
  if (drafts > request->most_drafts())
    return fmt::format("request {} has {} drafts, and {} are the most", row.request, drafts, request->most_drafts());
  return "";
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

// Of a request that waits for it: the tokens from `first` on are computed, and `result` is what was chosen behind them.
void PipelineState::accept(Request& request, int64_t first, int64_t tokens, bool samples, const RowResult& result,
                           std::vector<CommittedToken>& accepted) {
  if (samples && result.token < 0)
    return resolve(request, EndReason::failed,
                   !result.failure.empty()
                       ? result.failure
                       : fmt::format("the logits of output {} hold a NaN", request.outputs().size()));
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
