// The requests of a pipeline: accepted, admitted with their pages, preempted, resolved.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/schedule/pipeline.h"

namespace nodewright {

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
  turns_.wait(at(last_id_));
  return {last_id_, ""};
}

bool PipelineState::cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.is_resolved()) return false;
  resolve(found->second, EndReason::cancelled, "");
  erase_if_ended(id);
  return true;
}

bool PipelineState::fail_request(RequestId id, std::string message, bool by_request) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.is_resolved()) return false;
  resolve(found->second, EndReason::failed, std::move(message), by_request);
  erase_if_ended(id);
  return true;
}

std::string PipelineState::why_not_admit() const {
  if (mode_ != PipelineMode::running) return fmt::format("the pipeline is {}", name_of(mode_));
  if (waiting_.empty()) return "no request waits";
  const Request& first = *next_waiting();
  if (waits_for_prompt(first))
    return fmt::format("request {} shares the pages of request {}, whose prompt is not computed", first.id(),
                       first.spec().like);
  if (std::string why = why_no_pages(0); !why.empty()) return why;
  // A page for each that runs: or the request would be preempted by the next step, and be admitted again, for ever.
  const auto running = std::ranges::count_if(admitted_, [this](RequestId id) { return !find(id)->is_resolved(); });
  if (options_.reserve == Reserve::all || running == 0 || why_no_pages(running).empty()) return "";
  return fmt::format("{} tokens would leave less than a page for each of {} requests", admitted_length(first), running);
}

std::string PipelineState::why_no_pages(int64_t spare) const {
  const Request& first = *next_waiting();
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

// A request that shares a prompt waits until the prompt is computed; others may run meanwhile.
const Request* PipelineState::next_waiting() const {
  if (waiting_.empty()) return nullptr;
  return find(turns_.next([this](RequestId id) { return waits_for_prompt(*find(id)); }));
}

bool PipelineState::waits_for_prompt(const Request& request) const {
  const Request* like = shares_with(request);
  return like != nullptr && pool_.known(like->sequence()) < request.prompt_tokens() - 1;
}

const Request* PipelineState::yielding() const {
  const Request* next = next_waiting();
  if (options_.reserve == Reserve::all || mode_ != PipelineMode::running || next == nullptr) return nullptr;
  if (waits_for_prompt(*next) || why_not_admit().empty()) return nullptr;
  const auto yields = std::find_if(admitted_.rbegin(), admitted_.rend(), [&](RequestId id) {
    return !find(id)->is_resolved() && turns_.is_above(*find(id), *next);
  });
  return yields == admitted_.rend() ? nullptr : find(*yields);
}

PipelineState::FirstWaiting& PipelineState::first_waiting() const {
  const Request& first = *next_waiting();
  if (first_waiting_.id != first.id() || static_cast<int64_t>(first_waiting_.tokens.size()) != first.known_tokens())
    first_waiting_ = {
        first.id(), first.tokens(), {.searches = !first.spec().computes_all(), .adapter = first.spec().adapter_id}};
  return first_waiting_;
}

int64_t PipelineState::admitted_length(const Request& request) const {
  return options_.reserve == Reserve::all ? request.reserved_length()
                                          : std::min(request.reserved_length(), request.known_tokens() + 1);
}

bool PipelineState::admit() {
  if (!why_not_admit().empty()) return false;
  Request& first = at(next_waiting()->id());
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
  std::erase(waiting_, first.id());
  turns_.run(first);
  prompt_turns_.wait(first.turn());
  return true;
}

void PipelineState::preempt() {
  if (options_.reserve == Reserve::all) refuse("preempt", "pages are reserved for all that a request may write");
  if (mode_ != PipelineMode::running) refuse("preempt", "it is not running");
  const auto last =
      std::find_if(admitted_.rbegin(), admitted_.rend(), [this](RequestId id) { return !find(id)->is_resolved(); });
  if (last == admitted_.rend()) refuse("preempt", "no request has pages");
  const Request* yields = yielding();
  const RequestId id = yields != nullptr ? yields->id() : *last;
  Request& request = at(id);
  if (request.in_flight() > 0) refuse("preempt", fmt::format("request {} is in a step in flight", id));
  pool_.close(request.sequence());
  request.preempt();
  std::erase(admitted_, id);
  waiting_.insert(std::ranges::lower_bound(waiting_, id), id);
  turns_.yield(request);
  prompt_turns_.leave(request.turn());
  ++preemptions_;
}

// Each request passes here once. Its pages stay its own until every launch made so far has completed.
void PipelineState::resolve(Request& request, EndReason reason, std::string message, bool by_request) {
  request.resolve(reason);
  turns_.leave(request);
  prompt_turns_.leave(request.turn());
  if (request.sequence() < 0) {
    std::erase(waiting_, request.id());
  } else if (reason == EndReason::failed) {
    pool_.close_and_forget(request.sequence());
  } else {
    pool_.close(request.sequence());
  }
  resolutions_.push_back(
      {request.id(), reason, request.outputs(), std::move(message), request.found_tokens(), by_request});
}

void PipelineState::erase_if_ended(RequestId id) {
  const auto found = requests_.find(id);
  if (found->second.phase() != RequestPhase::ended) return;
  std::erase(admitted_, id);
  requests_.erase(found);
}

std::vector<Resolution> PipelineState::take_resolutions() { return std::exchange(resolutions_, {}); }

}  // namespace nodewright
