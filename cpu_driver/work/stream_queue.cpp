// Streams run only as far as a caller waits for them, so that a missing wait shows. Which operation comes first where
// that leaves a choice is the schedule's: the oldest, the newest, or any that is ready, whether needed or not.
#include "cpu_driver/work/stream_queue.h"

#include <algorithm>
#include <chrono>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/capture.h"
#include "cpu_driver/graphs/graph_run.h"
#include "cpu_driver/work/peer_launch.h"
#include "cpu_driver/work/worker_pool.h"
#include "runtime/host/held_signals.h"

namespace nodewright::cpu {
namespace {

// A query runs one operation and, unlike a wait, comes back from one that does not end: far more than any kernel of the
// tests takes, so that what a query has run does not depend on the machine.
constexpr std::chrono::milliseconds kQueryPatience{300};

// How long a wait for a value may hold up everything where launch_timeout_ms gives no limit, and how often it looks.
constexpr uint64_t kValuePatienceMs = 10000;
constexpr std::chrono::microseconds kValuePoll{200};

bool all_done(const std::vector<CompletionRef>& completions) {
  return std::all_of(completions.begin(), completions.end(), [](const CompletionRef& c) { return c->done; });
}

bool head_is_ready(const Stream& stream) { return all_done(stream.queue.front().after); }

bool is_blocking(const Stream& stream) { return (stream.flags & CU_STREAM_NON_BLOCKING) == 0; }

// The stream whose head must run next so that `completion` comes to be done.
Stream* next_towards(const Completion& completion) {
  Stream& stream = *completion.stream;
  for (const CompletionRef& c : stream.queue.front().after)
    if (!c->done) return next_towards(*c);
  return &stream;
}

}  // namespace

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

void complete(Completion& completion) {
  completion.done = true;
  completion.at_ms = now_ms();
  completion.stream = nullptr;
}

Executor::Executor(State& state) : state_(state), random_(state.options.seed * 0x9e3779b97f4a7c15ull | 1) {
  const HeldSignals held;  // Ctrl-C is for the program's threads: its own and the workers that it starts hold it back
  // By value: the caller holds the lock, the new thread does not.
  thread_ = std::thread([this, workers = state.options.workers, timeout_ms = state.options.launch_timeout_ms] {
    main(workers, timeout_ms);
  });
}

Executor::~Executor() {
  {
    const std::lock_guard lock(state_.mutex);
    stopping_ = true;
    wanted_.notify_all();
  }
  thread_.join();
}

CompletionRef Executor::enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, Operation operation) {
  operation.serial = ++serial_;
  operation.done->stream = stream.get();
  // The legacy default stream and the blocking streams wait for each other.
  if (stream == state_.null_stream) {
    for (const auto& other : busy_)
      if (other != stream && is_blocking(*other)) operation.after.push_back(other->last);
  } else if (is_blocking(*stream) && state_.null_stream->last != nullptr) {
    operation.after.push_back(state_.null_stream->last);
  }
  CompletionRef done = operation.done;
  stream->last = done;
  stream->queue.push_back(std::move(operation));
  if (stream->queue.size() == 1) busy_.push_back(stream);
  if (!state_.options.deferred && !done->done) {
    const auto demand = make_demand({.target = done, .at_launch = true});
    met_.wait(lock, [&] { return demand->met; });
  }
  return done;
}

CUresult Executor::wait_for(Lock& lock, CompletionRef completion) {
  if (completion == nullptr || completion->done) return state_.sticky;
  const auto demand = make_demand({.target = std::move(completion)});
  met_.wait(lock, [&] { return demand->met; });
  return state_.sticky;
}

CUresult Executor::wait_for_all(Lock& lock) {
  if (busy_.empty()) return state_.sticky;
  const auto demand = make_demand({});
  met_.wait(lock, [&] { return demand->met; });
  return state_.sticky;
}

CUresult Executor::wait_for_blocking(Lock& lock) {
  std::vector<CompletionRef> ends;
  for (const auto& stream : busy_)
    if (is_blocking(*stream)) ends.push_back(stream->last);
  for (const CompletionRef& end : ends) wait_for(lock, end);
  return state_.sticky;
}

CUresult Executor::advance(Lock& lock, CompletionRef towards) {
  if (towards == nullptr || towards->done) return state_.sticky;
  const auto demand = make_demand({.target = std::move(towards), .one_step = true});
  demand->given_up = !met_.wait_for(lock, kQueryPatience, [&] { return demand->met; });
  return state_.sticky;
}

std::shared_ptr<Executor::Demand> Executor::make_demand(Demand demand) {
  demands_.push_back(std::make_shared<Demand>(std::move(demand)));
  wanted_.notify_one();
  return demands_.back();
}

bool Executor::satisfied(const Demand& demand) const {
  return demand.target != nullptr ? demand.target->done : busy_.empty();
}

void Executor::main(int workers, uint64_t timeout_ms) {
  pool_ = std::make_unique<WorkerPool>(workers, timeout_ms);
  Lock lock(state_.mutex);
  for (;;) {
    wanted_.wait(lock, [this] { return stopping_ || !demands_.empty(); });
    if (stopping_) break;
    Demand& demand = *demands_.front();
    if (state_.sticky != CUDA_SUCCESS) drop_everything();
    const bool stepped = !demand.given_up && !satisfied(demand) && step(lock, demand);
    if (!stepped || demand.one_step || satisfied(demand)) {
      demand.met = true;
      demands_.pop_front();
      met_.notify_all();
    }
  }
  lock.unlock();
  pool_.reset();
}

Stream* Executor::choose(const Demand& demand) {
  const auto by_serial = [](const auto& a, const auto& b) { return a->queue.front().serial < b->queue.front().serial; };
  switch (state_.options.schedule) {
    case CpuSchedule::forward:  // the oldest of all waits only for older ones
      if (demand.target != nullptr) return next_towards(*demand.target);
      return std::min_element(busy_.begin(), busy_.end(), by_serial)->get();
    case CpuSchedule::reverse:
      if (demand.target != nullptr) return next_towards(*demand.target);
      return next_towards(*(*std::max_element(busy_.begin(), busy_.end(), by_serial))->queue.front().done);
    default: {
      random_ ^= random_ << 13;
      random_ ^= random_ >> 7;
      random_ ^= random_ << 17;
      for (size_t i = 0; i < busy_.size(); ++i) {
        Stream& stream = *busy_[(random_ + i) % busy_.size()];
        if (head_is_ready(stream)) return &stream;
      }
      return nullptr;
    }
  }
}

bool Executor::step(Lock& lock, const Demand& demand) {
  if (busy_.empty()) return false;
  const CpuSchedule schedule = state_.options.schedule;
  state_.deliveries.deliver_some(state_, schedule, random_);
  Stream* stream = choose(demand);
  if (stream == nullptr) return false;
  state_.host_may_help = false;
  if (run_head(lock, *stream) || run_beside(lock, *stream) || state_.deliveries.deliver_next(state_, schedule, random_))
    blocked_since_ms_ = 0;
  else if (state_.host_may_help || demand.one_step)
    wait_a_moment(lock);
  else if (demand.at_launch)
    return false;
  else
    report_deadlock();
  return true;
}

// Every kernel that is left waits for a packet, and none is on its way.
void Executor::report_deadlock() {
  std::string all;
  for (const auto& stream : busy_) {
    const Operation& head = stream->queue.front();
    const std::string one = head.run != nullptr         ? head.run->describe_waiting()
                            : head.at.launch != nullptr ? head.at.launch->describe(state_)
                                                        : std::string();
    if (!one.empty()) all.append(all.empty() ? "" : "; ").append(one);
  }
  state_.fail(CUDA_ERROR_LAUNCH_FAILED,
              "deadlock between devices: " + all + "; no block can go on, and no packet is on its way");
  drop_everything();
}

// False: the operation waits for a value or a semaphore.
bool Executor::run_head(Lock& lock, Stream& stream) {
  Operation& head = stream.queue.front();  // stays where it is: only this thread takes operations off
  Progress progress = Progress::finished;
  if (head.run != nullptr)
    progress = head.run->step(lock, *pool_);
  else
    progress = run_work(state_, lock, *pool_, head.work, head.at);
  if (state_.sticky != CUDA_SUCCESS)
    drop_everything();
  else if (progress == Progress::finished)
    finish_head(stream);
  return progress != Progress::blocked;
}

// Work of other streams, needed or not: it may write what `blocked` waits for. False: there is none that runs.
bool Executor::run_beside(Lock& lock, const Stream& blocked) {
  const std::vector<std::shared_ptr<Stream>> busy = busy_;
  return std::any_of(busy.begin(), busy.end(), [&](const std::shared_ptr<Stream>& stream) {
    return stream.get() != &blocked && head_is_ready(*stream) && run_head(lock, *stream);
  });
}

// The host, or another thread of it, may write the value.
void Executor::wait_a_moment(Lock& lock) {
  if (blocked_since_ms_ == 0) blocked_since_ms_ = now_ms();
  const uint64_t chosen_ms = state_.options.launch_timeout_ms;
  const auto limit_ms = static_cast<double>(chosen_ms != 0 ? chosen_ms : kValuePatienceMs);
  if (now_ms() - blocked_since_ms_ > limit_ms) {
    blocked_since_ms_ = 0;
    state_.fail(CUDA_ERROR_LAUNCH_TIMEOUT, state_.waiting_for +
                                               "; nothing else is left to run, and nobody has changed it for " +
                                               std::to_string(static_cast<uint64_t>(limit_ms)) + " ms");
    return drop_everything();
  }
  lock.unlock();
  std::this_thread::sleep_for(kValuePoll);
  lock.lock();
}

void Executor::finish_head(Stream& stream) {
  Operation& head = stream.queue.front();
  // The end of an operation promises its stores. The null stream is every device's.
  if (state_.sticky == CUDA_SUCCESS)
    for (int device = 0; device < state_.options.devices; ++device)
      if (stream.context == nullptr || device == device_of(stream.context))
        state_.deliveries.deliver_all_of(state_, device);
  complete(*head.done);
  for (const CompletionRef& record : head.records)
    if (!record->done) complete(*record);  // a failed run did not come to it
  stream.queue.pop_front();
  if (stream.queue.empty()) std::erase_if(busy_, [&](const auto& s) { return s.get() == &stream; });
}

void Executor::drop_everything() {
  state_.deliveries.drop();
  while (!busy_.empty()) finish_head(*busy_.back());
}

}  // namespace nodewright::cpu
