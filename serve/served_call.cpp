#include "serve/served_call.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace nodewright {

ApiError not_accepted(Admission admission) {
  switch (admission) {
    case Admission::full:
      return {429, "the server has as many requests as it may have; try again"};
    case Admission::loading:
      return {503, "the model is being loaded"};
    case Admission::asleep:
      return {503, "the engine sleeps, or is about to: POST /wake_up wakes it"};
    case Admission::draining:
      return {503, "the server is shutting down"};
    case Admission::failed:
    case Admission::accepted:
      break;
  }
  return {500, "the engine has failed"};
}

HttpHeaders answer_headers(const std::string& request_id, int status) {
  HttpHeaders headers{{"x-request-id", request_id}};
  if (status == 429 || status == 503) headers.emplace_back("Retry-After", "1");
  return headers;
}

ServedCall::ServedCall(std::unique_ptr<ApiCall> call, std::shared_ptr<HttpReply> reply, Replicas& replicas,
                       AccessLine line, const AccessLog& log, uint64_t client)
    : call_(std::move(call)),
      reply_(std::move(reply)),
      replicas_(replicas),
      line_(std::move(line)),
      log_(log),
      client_(client) {}

void ServedCall::begin() {
  std::vector<Submission> submissions = call_->submissions();
  size_t outputs = 0;
  for (Submission& submission : submissions) {
    submission.listener = shared_from_this();
    submission.client = client_;
    outputs += submission.asked.outputs.size();
  }
  if (outputs > replicas_.most_open())  // no other time would be better
    return fail({400, fmt::format("the call asks for {} outputs, and this server takes {} at most at a time "
                                  "(--max-requests): ask for fewer in a call",
                                  outputs, replicas_.most_open())});
  const std::shared_ptr<HttpReply> reply = reply_;  // once it is submitted, all else is the delivery thread's
  const EngineLoop::Submitted submitted = replicas_.submit(std::move(submissions));
  if (submitted.admission != Admission::accepted) return fail(not_accepted(submitted.admission));
  ticket_ = submitted.ticket;
  if (is_over_) return replicas_.cancel(submitted.ticket);
  reply->when_gone([&replicas = replicas_, ticket = submitted.ticket, gone = gone_] {
    *gone = true;
    replicas.cancel(ticket);
  });
}

void ServedCall::refused(const std::string& reason) {
  if (!is_over_) fail(call_->refusal(reason));
}

void ServedCall::updated(std::vector<OutputUpdate> updates) {
  if (is_over_) return;
  try {
    tell(updates);
  } catch (const std::exception& error) {  // this call's alone
    fail({500, error.what()});
  }
}

void ServedCall::tell(const std::vector<OutputUpdate>& updates) {
  std::string events;
  for (const OutputUpdate& update : updates)
    if (!call_->is_done()) events += call_->update(update);
  const bool done = call_->is_done();
  if (!call_->streams()) {
    if (!done) return;
    std::string body = call_->finish();
    reply_->send(call_->status(), "application/json", std::move(body),
                 answer_headers(line_.request_id, call_->status()));
    return end(call_->status());
  }
  if (!has_begun_ && call_->failure() != nullptr) {  // nothing was sent: the status can still say it
    reply_->send(call_->status(), "application/json", error_body(*call_->failure()),
                 answer_headers(line_.request_id, call_->status()));
    return end(call_->status());
  }
  if (!has_begun_) reply_->begin_events(answer_headers(line_.request_id));
  has_begun_ = true;
  if (done) events += call_->finish();
  if (!events.empty()) reply_->write(std::move(events));
  if (!done) return;
  reply_->end();
  end(call_->status());
}

void ServedCall::fail(const ApiError& error) {
  std::string body = call_->fail(error);
  if (has_begun_) {
    reply_->write(std::move(body));
    reply_->end();
  } else {
    reply_->send(error.status(), "application/json", error_body(error),
                 answer_headers(line_.request_id, error.status()));
  }
  end(error.status());
}

// Outputs that go on are nobody's.
void ServedCall::end(int status) {
  is_over_ = true;
  reply_.reset();
  if (status != 200 && ticket_ != 0) replicas_.cancel(ticket_);
  if (!log_) return;
  line_.status = *gone_ ? 499 : status;
  line_.is_call = true;
  line_.counts = call_->counts();
  line_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - arrived_).count();
  log_(line_);
}

}  // namespace nodewright
