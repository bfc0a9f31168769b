#include "serve/replicas/replicas.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "runtime/error.h"

namespace nodewright {
namespace {

// Serializes the delivery threads of a call whose prompts went to several replicas.
class SerialListener : public Listener {
 public:
  explicit SerialListener(std::shared_ptr<Listener> to) : to_(std::move(to)) {}
  void refused(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    to_->refused(reason);
  }
  void updated(std::vector<OutputUpdate> updates) override {
    const std::lock_guard lock(mutex_);
    to_->updated(std::move(updates));
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Listener> to_;
};

size_t outputs_of_call(const std::vector<Submission>& submissions) {
  size_t sum = 0;
  for (const Submission& submission : submissions) sum += submission.asked.outputs.size();
  return sum;
}

void serialize(std::vector<Submission>& submissions) {
  std::map<Listener*, std::shared_ptr<Listener>> serial;
  for (Submission& one : submissions) {
    std::shared_ptr<Listener>& wrapped = serial[one.listener.get()];
    if (!wrapped) wrapped = std::make_shared<SerialListener>(one.listener);
    one.listener = wrapped;
  }
}

}  // namespace

Replicas::Replicas(std::string model_name, ReplicaOptions options) : options_(std::move(options)) {
  for (size_t i = 0; i < options_.count; ++i)
    replicas_.push_back(std::make_unique<Replica>(model_name, i, loop_options(i)));
}

Replicas::~Replicas() = default;

LoopOptions Replicas::loop_options(size_t replica) {
  LoopOptions loop{.most_open = std::numeric_limits<size_t>::max() / 2};
  if (options_.ended) loop.ended = [this, replica](const EndedOutput& output) { options_.ended(replica, output); };
  if (options_.count > 1) {
    loop.untaken = [this, replica](const std::string& reason, std::vector<UntakenCall> calls) {
      take_back(replica, reason, std::move(calls));
    };
    loop.loaded = [this] {
      if (queued_ == 0) return;
      const std::lock_guard lock(mutex_);
      share_out();
    };
  }
  return loop;
}

// The replica has failed. In the order of their arrival before all that waits.
void Replicas::take_back(size_t replica, const std::string& reason, std::vector<UntakenCall> calls) {
  const std::lock_guard lock(mutex_);
  replicas_[replica]->failure = reason;
  for (auto call = calls.rbegin(); call != calls.rend(); ++call)
    for (auto one = call->submissions.rbegin(); one != call->submissions.rend(); ++one) {
      const RequestSpec& spec = one->asked.spec;
      std::vector<uint64_t> hashes;
      if (spec.adapter.empty()) hashes = prefix_hashes(spec.prompt);
      note_queued(std::ssize(one->asked.outputs));
      queue_.emplace(--first_number_, Waiting{call->ticket, call->arrived, std::move(*one), std::move(hashes)});
    }
  turns_ = {};  // anew, since calls come first that had their turns
  for (const auto& [number, request] : queue_) turns_.wait(turn_of(number, request));
  share_out();
}

void Replicas::accept() {
  const std::lock_guard lock(mutex_);
  accepts_ = true;
  for (const auto& replica : replicas_) replica->loop.accept();
}

EngineLoop::Submitted Replicas::submit(std::vector<Submission> submissions) {
  const Clock::time_point arrived = Clock::now();
  const size_t outputs = outputs_of_call(submissions);
  std::vector<std::vector<uint64_t>> hashes(submissions.size());
  if (count() > 1) {
    if (submissions.size() > 1) serialize(submissions);
    for (size_t i = 0; i < submissions.size(); ++i)
      if (submissions[i].asked.spec.adapter.empty()) hashes[i] = prefix_hashes(submissions[i].asked.spec.prompt);
  }
  const std::lock_guard lock(mutex_);
  EngineLoop::Submitted submitted{.admission = admission_of(outputs)};
  if (submitted.admission != Admission::accepted) return submitted;
  submitted.ticket = ++last_ticket_;
  for (size_t i = 0; i < submissions.size(); ++i)
    wait(++last_number_, {submitted.ticket, arrived, std::move(submissions[i]), std::move(hashes[i])});
  note_queued(static_cast<int64_t>(outputs));
  share_out();
  return submitted;
}

void Replicas::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  end_queued(EndReason::cancelled, "", ticket);
  for (const auto& replica : replicas_) replica->loop.cancel(ticket);
}

Admission Replicas::admission() const {
  const std::lock_guard lock(mutex_);
  return admission_of(1);
}

Admission Replicas::admission_of(size_t outputs) const {
  const auto are_all = [this](auto... words) {
    return std::ranges::all_of(replicas_, [words...](const auto& replica) {
      const Admission now = replica->loop.admission();
      return ((now == words) || ...);
    });
  };
  return are_all(Admission::failed)                      ? Admission::failed
         : draining_                                     ? Admission::draining
         : !accepts_                                     ? Admission::loading
         : are_all(Admission::asleep, Admission::failed) ? Admission::asleep
         : !has_place(outputs)                           ? Admission::full
                                                         : Admission::accepted;
}

bool Replicas::has_place(size_t outputs) const {
  if (open_outputs() + outputs <= options_.most_open) return true;
  OpenCalls calls;
  for (const auto& replica : replicas_) replica->loop.add_open(calls);
  for (const auto& [number, one] : queue_) calls.add(one.ticket, one.submission.asked.outputs.size());
  return calls.may_add(outputs, options_.most_open);
}

// Nobody will ever take what waits: all have failed, or were drained before one of them gave calls back.
bool Replicas::nobody_is_left() const {
  return std::ranges::all_of(replicas_, [](const auto& replica) {
    const Admission now = replica->loop.admission();
    return now == Admission::failed || now == Admission::draining;
  });
}

size_t Replicas::open() const {
  const std::lock_guard lock(mutex_);
  return open_outputs();
}

size_t Replicas::open_outputs() const {
  size_t open = queued_;
  for (const auto& replica : replicas_) open += replica->loop.open();
  return open;
}

void Replicas::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  share_out();
}

void Replicas::abort() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  end_queued(EndReason::cancelled, "");
  for (const auto& replica : replicas_) replica->loop.abort();
}

void Replicas::run(size_t replica, Engine& engine, EngineSleep* sleep) {
  try {
    loop(replica).run(engine, sleep);
  } catch (const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      replicas_[replica]->failure = error.what();
    }
    delivery_.flush();
    throw;
  }
  delivery_.flush();
}

std::vector<ReplicaState> Replicas::states() const {
  const std::lock_guard lock(mutex_);
  std::vector<ReplicaState> states;
  for (const auto& replica : replicas_)
    states.push_back({replica->loop.admission(), replica->loop.sleep_level(), replica->loop.open(),
                      replica->loop.load().tokens, replica->failure});
  return states;
}

std::string Replicas::metrics_text() const {
  std::vector<std::string> pages;
  for (const auto& replica : replicas_) pages.push_back(replica->metrics.text());
  return merged_pages(pages);
}

// Where the first that waits goes now. `to_any`: also to one without room.
std::optional<size_t> Replicas::choose(const Waiting& request, bool to_any) const {
  std::vector<ReplicaOffer> offers;
  for (const auto& replica : replicas_) {
    ReplicaOffer offer{.serves = replica->loop.admission() == Admission::accepted};
    if (offer.serves && count() > 1) {
      offer.load = replica->loop.load();
      offer.cached_pages = replica->index.leading_pages(request.hashes);
    }
    if (to_any || count() == 1) {
      offer.load.rows = std::max<int64_t>(offer.load.rows, 1);
      offer.load.outputs = 0;
    }
    offers.push_back(std::move(offer));
  }
  const ReplicaDemand demand{.prompt_tokens = std::ssize(request.submission.asked.spec.prompt),
                             .outputs = std::ssize(request.submission.asked.outputs)};
  return choose_replica(offers, demand, options_.preference);
}

void Replicas::wait(int64_t number, Waiting request) {
  const auto place = queue_.emplace(number, std::move(request)).first;
  turns_.wait(turn_of(number, place->second));
}

// Clients and their calls in turn, as long as there is room for the next.
void Replicas::share_out(bool to_any) {
  while (const std::optional<int64_t> number = turns_.next()) {
    Waiting& request = queue_.at(*number);
    const std::optional<size_t> chosen = choose(request, to_any);
    if (!chosen) break;
    const int64_t outputs = std::ssize(request.submission.asked.outputs);
    std::vector<Submission> one;
    one.push_back(std::move(request.submission));
    const TurnLines::Item turn{one.front().client, static_cast<int64_t>(request.ticket), *number};
    if (loop(*chosen).submit(one, request.ticket, request.arrived) == Admission::accepted) {
      turns_.begin(turn);
      queue_.erase(*number);
      note_queued(-outputs);
    } else {  // it has just failed: the next round asks the others
      request.submission = std::move(one.front());
    }
  }
  if (!queue_.empty() && nobody_is_left()) {
    const auto failed = std::ranges::find_if(replicas_, [](const auto& replica) { return !replica->failure.empty(); });
    end_queued(EndReason::failed, failed == replicas_.end() ? "the server is shutting down" : (*failed)->failure);
  }
  if (draining_ && queue_.empty())
    for (const auto& replica : replicas_) replica->loop.drain();
}

// `ticket`: of one call; 0: all of them.
void Replicas::end_queued(EndReason reason, const std::string& message, Ticket ticket) {
  if (queue_.empty()) return;
  const auto now = Clock::now();
  std::vector<Delivery::Parcel> parcels;
  std::erase_if(queue_, [&](const auto& waiting) {
    const auto& [number, request] = waiting;
    if (ticket != 0 && request.ticket != ticket) return false;
    const Submission& submission = request.submission;
    Delivery::Parcel& parcel = parcels.emplace_back(Delivery::Parcel{.to = submission.listener});
    for (int k = 0; k < std::ssize(submission.asked.outputs); ++k) {
      parcel.updates.push_back(
          {.index = submission.first_index + k, .end = Resolution{.reason = reason, .message = message}});
      replicas_.front()->metrics.ended(reason, {.whole = std::chrono::duration<double>(now - request.arrived).count(),
                                                .prompt_tokens = std::ssize(submission.asked.spec.prompt)});
    }
    note_queued(-std::ssize(submission.asked.outputs));
    turns_.leave(turn_of(number, request));
    return true;
  });
  delivery_.send(std::move(parcels));
}

void Replicas::note_queued(int64_t more) {
  queued_ += static_cast<size_t>(more);
  if (count() > 1) replicas_.front()->metrics.queued(static_cast<int64_t>(queued_));
}

}  // namespace nodewright
