#include "serve/loop/engine_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/error.h"

namespace nodewright {
namespace {

// Metrics of a running engine are no older than this.
constexpr std::chrono::milliseconds kSeenEvery{20};

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

size_t outputs_of(const std::vector<Submission>& submissions) {
  size_t sum = 0;
  for (const Submission& submission : submissions) sum += submission.asked.outputs.size();
  return sum;
}

}  // namespace

void EngineLoop::accept() {
  const std::lock_guard lock(mutex_);
  accepts_ = true;
}

EngineLoop::Submitted EngineLoop::submit(std::vector<Submission> submissions) {
  Submitted submitted;
  {
    const std::lock_guard lock(mutex_);
    submitted.ticket = ++last_ticket_;
  }
  submitted.admission = submit(submissions, submitted.ticket, Clock::now());
  return submitted;
}

Admission EngineLoop::submit(std::vector<Submission>& submissions, Ticket ticket, Clock::time_point arrived) {
  const size_t outputs = outputs_of(submissions);
  {
    const std::lock_guard lock(mutex_);
    if (const Admission now = admission_of(outputs); now != Admission::accepted) return now;
    open_.add(ticket, outputs);
    for (const Submission& one : submissions) load_.add(one.asked);
    calls_.push_back({ticket, std::move(submissions), arrived});
  }
  came_.notify_one();
  return Admission::accepted;
}

void EngineLoop::cancel(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(ticket);
  }
  came_.notify_one();
}

Admission EngineLoop::admission() const {
  const std::lock_guard lock(mutex_);
  return admission_of(1);
}

Admission EngineLoop::admission_of(size_t outputs) const {
  return failed_                                       ? Admission::failed
         : draining_                                   ? Admission::draining
         : !accepts_                                   ? Admission::loading
         : rests_                                      ? Admission::asleep
         : !open_.may_add(outputs, options_.most_open) ? Admission::full
                                                       : Admission::accepted;
}

size_t EngineLoop::open() const {
  const std::lock_guard lock(mutex_);
  return open_.outputs();
}

void EngineLoop::add_open(OpenCalls& calls) const {
  const std::lock_guard lock(mutex_);
  calls.add(open_);
}

LoopLoad EngineLoop::load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

void EngineLoop::drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  came_.notify_one();
}

void EngineLoop::abort() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = aborted_ = true;
  }
  came_.notify_one();
}

void EngineLoop::fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = reason;
  }
  came_.notify_one();
}

void EngineLoop::run(Engine& engine, EngineSleep* sleep) {
  sleep_ = sleep;
  metrics_.see(engine);
  std::string failure;
  try {
    failure = serve(engine);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (!failure.empty()) end_all(failure);
  refuse_orders();
  metrics_.see(engine);
  delivery_.flush();
  if (!failure.empty()) throw Error({.doing = "serve", .detail = failure});
}

// Until it is drained: empty. Or until the engine fails: why.
std::string EngineLoop::serve(Engine& engine) {
  bool advanced = false;
  note_load(engine);
  while (take_calls(engine, !advanced && outputs_.empty() && orders_.empty())) {
    follow_orders(engine);
    advanced = engine.advance();
    note_admissions(engine);
    give_updates(engine);
    if (engine.pipeline().mode() == PipelineMode::failed)
      return engine.submit({.prompt = {0}, .max_tokens = 1}).reason;  // refused: the reason is the failure's
    note_load(engine);
  }
  while (engine.advance()) continue;
  return {};
}

bool EngineLoop::take_calls(Engine& engine, bool wait) {
  std::vector<UntakenCall> calls;
  std::vector<Ticket> cancelled;
  std::vector<AdapterOrder> adapter_orders;
  std::string failure;
  bool aborted = false, ended = false;
  {
    std::unique_lock lock(mutex_);
    const auto is_something = [&] {
      return !calls_.empty() || !cancelled_.empty() || !new_orders_.empty() || !adapter_orders_.empty() || draining_ ||
             !failure_.empty();
    };
    if (wait && !is_something()) came_.wait(lock, is_something);
    calls.swap(calls_);
    cancelled.swap(cancelled_);
    adapter_orders.swap(adapter_orders_);
    std::ranges::move(std::exchange(new_orders_, {}), std::back_inserter(orders_));
    aborted = aborted_;
    failure.swap(failure_);
    ended = draining_ && calls.empty() && open_.outputs() == 0;
  }
  if (!failure.empty()) engine.fail(failure);
  follow_adapter_orders(engine, std::move(adapter_orders));
  if (ended) return false;
  for (UntakenCall& call : calls) submit(engine, std::move(call));
  if (aborted || !cancelled.empty()) cancel_open(engine, cancelled, aborted);
  return true;
}

void EngineLoop::submit(Engine& engine, UntakenCall call) {
  RequestId& first_of_call = first_of_call_[call.ticket];
  for (Submission& submission : call.submissions) {
    AskedRequest& asked = submission.asked;
    asked.spec.call = first_of_call;
    asked.spec.client = submission.client;
    size_t refused = 0;
    std::string reason;
    for (size_t k = 0; k < asked.outputs.size(); ++k) {
      const auto prompt_tokens = std::ssize(asked.spec.prompt);
      auto [id, why] = engine.submit(asked.spec, asked.outputs[k].sampling, std::move(asked.outputs[k].choice.options));
      if (!id) {
        ++refused;
        reason = std::move(why);
        metrics_.refused();
        continue;
      }
      if (asked.spec.like == 0) {  // the others share its prompt, whose log probabilities are reported once
        asked.spec.like = *id;
        for (AskedOutput& output : asked.outputs) output.choice.options.prompt_logprobs = -1;
      }
      if (asked.spec.call == 0) asked.spec.call = first_of_call = *id;
      outputs_[*id] = {.ticket = call.ticket,
                       .index = submission.first_index + static_cast<int>(k),
                       .listener = submission.listener,
                       .stops = asked.outputs[k].choice.stops,
                       .so_far = {.request = *id, .arrived = call.arrived, .prompt_tokens = prompt_tokens}};
    }
    if (refused == 0) continue;
    delivery_.send({{.to = submission.listener, .refused = reason}});
    close_outputs(call.ticket, refused);
  }
}

void EngineLoop::close_outputs(Ticket ticket, size_t outputs) {
  const std::lock_guard lock(mutex_);
  open_.remove(ticket, outputs);
  if (open_.of(ticket) == 0) first_of_call_.erase(ticket);
}

void EngineLoop::cancel_open(Engine& engine, const std::vector<Ticket>& tickets, bool all) {
  for (const auto& [id, output] : outputs_)
    if (all || std::ranges::find(tickets, output.ticket) != tickets.end()) engine.cancel(id);
}

void EngineLoop::note_admissions(const Engine& engine) {
  const auto now = Clock::now();
  for (const RequestId id : engine.pipeline().admitted())
    if (const auto output = outputs_.find(id); output != outputs_.end() && !output->second.so_far.admitted)
      output->second.so_far.admitted = now;
}

void EngineLoop::give_updates(Engine& engine) {
  Updates updates;
  take_tokens(engine, updates);
  std::map<RequestId, std::shared_ptr<Listener>> listeners;
  for (const auto& [id, update] : updates) listeners[id] = outputs_.at(id).listener;
  std::vector<Resolution> ends = engine.take_resolutions();
  for (Resolution& end : ends) {
    const auto found = outputs_.find(end.request);
    Output& output = found->second;
    listeners[end.request] = output.listener;
    OutputUpdate& update = updates[end.request];
    update.index = output.index;
    if (output.stops) {
      output.stops->finish();
      update.text += output.stops->text().substr(output.told);
      if (end.reason == EndReason::stop_string) update.stop_string = output.stops->matched();
    }
    output.so_far.found_tokens = end.found_tokens;
    note_end(output, end.reason);
    close_outputs(output.ticket, 1);
    outputs_.erase(found);
    if (cancelled_for_sleep_ && end.reason == EndReason::cancelled) end.message = "the engine is put to sleep";
    update.end = std::move(end);
  }
  // Before the delivery: a client that has its answer is in the counts.
  if (const auto now = Clock::now(); now - seen_ >= kSeenEvery || !ends.empty() || outputs_.empty()) {
    metrics_.see(engine);
    seen_ = now;
  }
  std::map<Listener*, size_t> places;
  std::vector<Delivery::Parcel> parcels;
  for (auto& [id, update] : updates) {
    const std::shared_ptr<Listener>& listener = listeners.at(id);
    const auto [place, is_new] = places.emplace(listener.get(), parcels.size());
    if (is_new) parcels.push_back({.to = listener, .updates = {}, .refused = {}});
    parcels[place->second].updates.push_back(std::move(update));
  }
  delivery_.send(std::move(parcels));
}

void EngineLoop::take_tokens(Engine& engine, Updates& updates) {
  const auto now = Clock::now();
  const auto update_of = [&](RequestId id) -> OutputUpdate& {
    OutputUpdate& update = updates[id];
    update.index = outputs_.at(id).index;
    return update;
  };
  for (const CommittedToken& token : engine.take_tokens()) update_of(token.request).tokens.push_back(token.token);
  for (TokenLogprobs& one : engine.take_logprobs()) update_of(one.request).logprobs.push_back(std::move(one));
  for (TokenLogprobs& one : engine.take_prompt_logprobs())
    update_of(one.request).prompt_logprobs.push_back(std::move(one));
  for (auto& [id, update] : updates) {
    Output& output = outputs_.at(id);
    EndedOutput& times = output.so_far;
    if (update.tokens.empty()) continue;
    const int64_t count = std::ssize(update.tokens);
    if (!times.first_token) {
      times.first_token = now;
      metrics_.first_token(seconds(now - times.arrived));
    } else {
      metrics_.more_tokens(seconds(now - *times.last_token), count);
    }
    times.last_token = now;
    times.tokens += count;
    if (!output.stops) continue;
    update.text = output.stops->text().substr(output.told);
    output.told += update.text.size();
  }
}

void EngineLoop::note_end(Output& output, EndReason reason) {
  EndedOutput& so_far = output.so_far;
  so_far.reason = reason;
  so_far.ended = Clock::now();
  OutputTimes times{
      .whole = seconds(so_far.ended - so_far.arrived), .prompt_tokens = so_far.prompt_tokens, .tokens = so_far.tokens};
  if (so_far.admitted) times.queued = seconds(*so_far.admitted - so_far.arrived);
  if (so_far.admitted && so_far.first_token) times.prefill = seconds(*so_far.first_token - *so_far.admitted);
  if (so_far.first_token) times.decode = seconds(*so_far.last_token - *so_far.first_token);
  metrics_.ended(reason, times);
  if (options_.ended) options_.ended(so_far);
}

void EngineLoop::note_load(const Engine& engine) {
  if (!options_.loaded) return;
  LoopLoad now = load_of(engine);
  {
    const std::lock_guard lock(mutex_);
    for (const UntakenCall& call : calls_)
      for (const Submission& one : call.submissions) now.add(one.asked);
    load_ = now;
  }
  options_.loaded();
}

// The engine has failed: whatever is open ends so, what it has not told of and what waits before it; the latter
// unless somebody else takes it.
void EngineLoop::end_all(const std::string& reason) {
  std::vector<UntakenCall> calls;
  {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    calls.swap(calls_);
    open_ = {};
    load_ = {};
  }
  if (options_.untaken) options_.untaken(reason, std::exchange(calls, {}));
  const auto now = Clock::now();
  std::vector<Delivery::Parcel> parcels;
  for (auto& [id, output] : outputs_) {
    Delivery::Parcel& parcel = parcels.emplace_back(Delivery::Parcel{.to = output.listener});
    parcel.updates.push_back(
        {.index = output.index, .end = Resolution{.reason = EndReason::failed, .message = reason}});
    note_end(output, EndReason::failed);
  }
  outputs_.clear();
  for (const UntakenCall& call : calls)
    for (const Submission& submission : call.submissions) {
      Delivery::Parcel& parcel = parcels.emplace_back(Delivery::Parcel{.to = submission.listener});
      for (int k = 0; k < std::ssize(submission.asked.outputs); ++k) {
        parcel.updates.push_back(
            {.index = submission.first_index + k, .end = Resolution{.reason = EndReason::failed, .message = reason}});
        metrics_.ended(EndReason::failed, {.whole = seconds(now - call.arrived),
                                           .prompt_tokens = std::ssize(submission.asked.spec.prompt)});
      }
    }
  delivery_.send(std::move(parcels));
}

}  // namespace nodewright
