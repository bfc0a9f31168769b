#include "engine/schedule/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/error.h"

namespace nodewright {

std::string_view name_of(RequestPhase phase) {
  constexpr std::string_view kNames[] = {"waiting", "prefilling", "decoding", "finishing", "ended"};
  return kNames[static_cast<size_t>(phase)];
}

std::string_view name_of(EndReason reason) {
  constexpr std::string_view kNames[] = {"stop id", "stop string", "complete", "length", "cancelled", "failed"};
  return kNames[static_cast<size_t>(reason)];
}

std::string_view finish_word(EndReason reason, std::string_view cancelled, std::string_view failed) {
  switch (reason) {
    case EndReason::stop_id:
    case EndReason::stop_string:
    case EndReason::complete:
      return "stop";
    case EndReason::length:
      return "length";
    case EndReason::cancelled:
      return cancelled;
    case EndReason::failed:
      break;
  }
  return failed;
}

std::string Request::why_not(const RequestSpec& spec, int64_t max_context) {
  if (spec.prompt.empty()) return "the prompt is empty";
  if (spec.max_tokens < 1) return fmt::format("max_tokens is {}, below 1", spec.max_tokens);
  if (static_cast<int64_t>(spec.prompt.size()) >= max_context)
    return fmt::format("a prompt of {} tokens leaves no output in a context of {}", spec.prompt.size(), max_context);
  return "";
}

Request::Request(RequestId id, RequestSpec spec, int64_t max_context)
    : id_(id),
      spec_(std::move(spec)),
      most_outputs_(std::min(spec_.max_tokens, max_context - static_cast<int64_t>(spec_.prompt.size()))) {
  if (const std::string reason = why_not(spec_, max_context); !reason.empty())
    throw Error({.doing = "accept request", .object = std::to_string(id), .detail = reason, .fault = Fault::usage});
}

int32_t Request::token_at(int64_t position) const {
  const auto index = static_cast<size_t>(position);
  return index < spec_.prompt.size() ? spec_.prompt[index] : outputs_.at(index - spec_.prompt.size());
}

std::vector<int32_t> Request::tokens() const {
  std::vector<int32_t> all = spec_.prompt;
  all.insert(all.end(), outputs_.begin(), outputs_.end());
  return all;
}

bool Request::can_decode() const {
  return phase_ == RequestPhase::decoding && in_flight_ < kMostInFlight && drafted_ == 0 &&
         next_output() < most_outputs_;
}

int64_t Request::most_drafts() const {
  return can_decode() && in_flight_ == 0 ? most_outputs_ - static_cast<int64_t>(outputs_.size()) - 1 : 0;
}

void Request::admit(int32_t sequence, int64_t start) {
  demand(phase_ == RequestPhase::waiting && start >= 0 && start < known_tokens(), "admit");
  phase_ = RequestPhase::prefilling;
  sequence_ = sequence;
  computed_ = start;
  if (last_step_ == 0) found_tokens_ = start;
  prefill_end_ = known_tokens();
}

void Request::preempt() {
  demand(sequence_ >= 0 && !is_resolved() && in_flight_ == 0, "preempt");
  phase_ = RequestPhase::waiting;
  sequence_ = -1;
  computed_ = 0;
}

void Request::launch(int64_t tokens, uint64_t step) {
  demand(phase_ == RequestPhase::prefilling ? in_flight_ < kMostInFlight && tokens >= 1 && tokens <= prompt_left()
                                            : can_decode() && tokens >= 1 && tokens <= 1 + most_drafts(),
         "launch a row of");
  if (phase_ == RequestPhase::decoding) drafted_ = tokens - 1;
  computed_ += tokens;
  if (computed_ == prefill_end_) phase_ = RequestPhase::decoding;
  if (phase_ == RequestPhase::decoding) ++choosing_;
  ++in_flight_;
  last_step_ = step;
}

void Request::revoke(int64_t tokens) {
  demand(in_flight_ > 0 && tokens >= 1 && tokens <= computed_, "revoke a row of");
  computed_ -= tokens;
  drafted_ = 0;
  if (choosing_ > 0) --choosing_;
  if (phase_ == RequestPhase::decoding && computed_ < prefill_end_) phase_ = RequestPhase::prefilling;
  leave_step();
}

void Request::commit() {
  demand(in_flight_ > 0, "commit a row of");
  if (drafted_ > 0 && !is_resolved()) computed_ = known_tokens() - 1;
  drafted_ = 0;
  if (choosing_ == in_flight_) --choosing_;
  leave_step();
}

void Request::leave_step() {
  if (--in_flight_ == 0 && phase_ == RequestPhase::finishing) phase_ = RequestPhase::ended;
}

std::optional<EndReason> Request::accept(int32_t token, bool completes_stop_string, bool completes_grammar) {
  demand(phase_ == RequestPhase::decoding && in_flight_ > 0 && choosing_ == in_flight_, "accept a token of");
  demand(static_cast<int64_t>(outputs_.size()) < most_outputs_, "accept a token of");
  outputs_.push_back(token);
  if (std::ranges::count(spec_.stop_ids, token) > 0) return EndReason::stop_id;
  if (completes_stop_string) return EndReason::stop_string;
  if (completes_grammar) return EndReason::complete;
  if (static_cast<int64_t>(outputs_.size()) == most_outputs_) return EndReason::length;
  return std::nullopt;
}

void Request::resolve(EndReason reason) {
  demand(!is_resolved(), "resolve");
  reason_ = reason;
  phase_ = in_flight_ > 0 ? RequestPhase::finishing : RequestPhase::ended;
}

void Request::demand(bool holds, std::string_view transition) const {
  if (holds) return;
  throw Error({.doing = std::string(transition) + " request",
               .object = std::to_string(id_),
               .detail = fmt::format("it is {}{}{}: {} of {} prompt tokens and {} of {} outputs, {} steps in flight",
                                     name_of(phase_), reason_ ? ", " : "", reason_ ? name_of(*reason_) : "",
                                     std::min(computed_, prompt_tokens()), prompt_tokens(), outputs_.size(),
                                     most_outputs_, in_flight_)});
}

}  // namespace nodewright
