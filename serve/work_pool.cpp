#include "serve/work_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/host/held_signals.h"

namespace nodewright {
namespace {

constexpr int kLowestPriority = 19;

}  // namespace

WorkPool::WorkPool(WorkPoolOptions options) : options_(options) {
  const HeldSignals held;  // signals are for the thread that waits for them
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < options_.threads; ++i) add_worker();
  }
  watcher_ = std::thread([this] { watch(); });
  pthread_setname_np(watcher_.native_handle(), "work watcher");
}

WorkPool::~WorkPool() {
  while (!stop(std::chrono::hours(1))) continue;
  watcher_.join();
}

bool WorkPool::stop(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  ended_ = true;
  came_.notify_all();
  began_.notify_all();
  return left_.wait_for(lock, patience, [&] { return workers_.empty() && gone_.empty(); });
}

bool WorkPool::post(std::function<void()> job, const std::string& client, bool watched) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || waiting_ >= options_.most_waiting) return false;
    const auto queue = jobs_.find(client);
    if (queue != jobs_.end() && queue->second.size() >= std::max<size_t>(options_.most_waiting * 3 / 4, 1))
      return false;
    if (queue == jobs_.end()) turns_.push_back(client);
    jobs_[client].push_back({std::move(job), watched});
    ++waiting_;
  }
  came_.notify_one();
  return true;
}

WorkPool::Clock::duration WorkPool::longest() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  Clock::duration longest{};
  for (const Worker& worker : workers_)
    if (worker.busy && worker.watched) longest = std::max(longest, now - worker.since);
  return longest;
}

size_t WorkPool::slow() const {
  const std::lock_guard lock(mutex_);
  return slow_;
}

void WorkPool::add_worker() {
  Worker& worker = workers_.emplace_back();
  worker.thread = std::thread([this, &worker] { work(worker); });
  pthread_setname_np(worker.thread.native_handle(), "worker");
}

bool WorkPool::may_have_more(const std::string& client) const {
  const auto found = running_.find(client);
  return found == running_.end() || found->second < (options_.threads + options_.most_slow + 1) / 2;
}

// The next job of the first client that may have one more; the client's next turn comes after those of the others.
bool WorkPool::take(Worker& self, Job& job) {
  const auto turn = std::ranges::find_if(turns_, [this](const std::string& client) { return may_have_more(client); });
  if (turn == turns_.end()) return false;
  const auto queue = jobs_.find(*turn);
  job = std::move(queue->second.front());
  queue->second.pop_front();
  --waiting_;
  self.client = *turn;
  if (queue->second.empty()) {
    jobs_.erase(queue);
    turns_.erase(turn);
  } else {
    turns_.splice(turns_.end(), turns_, turn);
  }
  return true;
}

void WorkPool::work(Worker& self) {
  std::unique_lock lock(mutex_);
  self.id = gettid();
  while (!self.slow) {
    Job job;
    came_.wait(lock, [&] { return take(self, job) || ended_; });
    if (!job.run) break;
    self.busy = true;
    self.watched = job.watched;
    self.since = Clock::now();
    ++running_[self.client];
    if (++busy_ == 1) began_.notify_one();
    lock.unlock();
    job.run();
    job.run = nullptr;
    lock.lock();
    self.busy = false;
    --busy_;
    if (const auto mine = running_.find(self.client); --mine->second == 0) running_.erase(mine);
    if (!turns_.empty()) came_.notify_one();  // a client that had as many as it may
  }
  if (self.slow) --slow_;
  gone_.splice(gone_.end(), workers_, std::ranges::find(workers_, &self, [](Worker& one) { return &one; }));
  began_.notify_one();
}

// Looks while something runs; a thread that is found slow ends with its job.
void WorkPool::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_ || !workers_.empty() || !gone_.empty()) {
    join_ended(lock);
    if (ended_ && workers_.empty() && gone_.empty()) break;
    if (busy_ == 0)
      began_.wait(lock, [&] { return busy_ > 0 || !gone_.empty(); });
    else
      began_.wait_for(lock, options_.slow_after);
    if (ended_) continue;
    const auto late = Clock::now() - options_.slow_after;
    for (size_t left = workers_.size(), i = 0; i < left && slow_ < options_.most_slow; ++i) {
      Worker& worker = *std::next(workers_.begin(), static_cast<std::ptrdiff_t>(i));
      if (!worker.busy || worker.slow || worker.since > late) continue;
      worker.slow = true;
      ++slow_;
      setpriority(PRIO_PROCESS, static_cast<id_t>(worker.id), kLowestPriority);
      const HeldSignals held;
      add_worker();
    }
  }
}

void WorkPool::join_ended(std::unique_lock<std::mutex>& lock) {
  std::list<Worker> ended = std::move(gone_);
  gone_.clear();
  lock.unlock();
  for (Worker& worker : ended) worker.thread.join();
  lock.lock();
  if (workers_.empty() && gone_.empty()) left_.notify_all();
}

}  // namespace nodewright
