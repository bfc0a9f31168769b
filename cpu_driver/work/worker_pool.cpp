// Helpers park on a condition variable between grids; nobody spins.
#include "cpu_driver/work/worker_pool.h"

#include <algorithm>
#include <chrono>

#include "cpu_driver/blocks/fault_handler.h"

namespace nodewright::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Waking a parked helper and waiting for it: tens of microseconds on a 2-core VM, a guess that errs towards one thread.
constexpr double kWorthWakingNs = 40e3;

}  // namespace

uint64_t cluster_at(const Grid& grid, uint64_t clusters, uint64_t turn) {
  switch (grid.schedule) {
    case CpuSchedule::forward:
      return turn;
    case CpuSchedule::reverse:
      return clusters - 1 - turn;
    default: {
      // A stride that shares no factor with the count visits every cluster once.
      uint64_t stride = (grid.seed * 0x9e3779b97f4a7c15ull >> 20) % clusters + 1;
      const auto shares_factor = [&](uint64_t a, uint64_t b) {
        while (b != 0) {
          const uint64_t rest = a % b;
          a = b;
          b = rest;
        }
        return a != 1;
      };
      while (shares_factor(stride, clusters)) ++stride;
      return (turn * stride + grid.seed % clusters) % clusters;
    }
  }
}

WorkerPool::WorkerPool(int workers, uint64_t timeout_ms) : timeout_ms_(timeout_ms) {
  if (workers <= 0) workers = static_cast<int>(std::thread::hardware_concurrency());
  install_signal_stack();
  runners_.push_back(pthread_self());
  for (int i = 1; i < workers; ++i) {
    threads_.emplace_back([this] { helper_main(); });
    runners_.push_back(threads_.back().native_handle());
  }
  if (timeout_ms_ > 0) threads_.emplace_back([this] { watchdog_main(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  watch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::work_on(Job& job, BlockRunner& runner) {
  while (!job.failed.load(std::memory_order_relaxed)) {
    const uint64_t turn = job.next.fetch_add(1, std::memory_order_relaxed);
    if (turn >= job.clusters) return;
    if (runner.run(*job.grid, cluster_at(*job.grid, job.clusters, turn)) == BlockEnd::finished) continue;
    const std::lock_guard lock(job.failure_mutex);
    if (!job.failed.exchange(true)) job.failure = runner.failure();
  }
}

BlockFailure WorkerPool::run(const Grid& grid, double& ns_per_block) {
  Job job{.grid = &grid, .clusters = grid.clusters()};
  const auto blocks = static_cast<double>(grid.blocks());
  const size_t helpers = runners_.size() - 1;
  const bool unknown = ns_per_block == 0;
  const bool spread = helpers > 0 && job.clusters > 1 && (unknown || ns_per_block * blocks > kWorthWakingNs);
  const auto start = Clock::now();
  if (spread || timeout_ms_ > 0) {
    const std::lock_guard lock(mutex_);
    ++generation_;
    job_ = spread ? &job : nullptr;
    running_ = true;
  }
  if (spread) {
    if (job.clusters - 1 < helpers)
      for (uint64_t i = 1; i < job.clusters; ++i) wake_.notify_one();
    else
      wake_.notify_all();
  }
  if (timeout_ms_ > 0) watch_.notify_all();
  work_on(job, own_runner_);
  if (spread || timeout_ms_ > 0) {
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // a helper that wakes from now on goes back to sleep
    idle_.wait(lock, [this] { return active_ == 0; });
    running_ = false;
  }
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  const double threads = spread ? static_cast<double>(std::min<uint64_t>(job.clusters, helpers + 1)) : 1;
  const double measured = ns * threads / blocks + 1;
  ns_per_block = unknown ? measured : 0.75 * ns_per_block + 0.25 * measured;
  return job.failure;
}

BlockEnd WorkerPool::run_watched(const std::function<BlockEnd()>& go_on) {
  if (timeout_ms_ == 0) return go_on();
  const auto set_running = [this](bool running) {
    const std::lock_guard lock(mutex_);
    generation_ += running ? 1 : 0;
    running_ = running;
  };
  set_running(true);
  watch_.notify_all();
  const BlockEnd end = go_on();
  set_running(false);
  return end;
}

std::unique_ptr<BlockRunner> WorkerPool::borrow_runner() {
  if (idle_runners_.empty()) return std::make_unique<BlockRunner>();
  auto runner = std::move(idle_runners_.back());
  idle_runners_.pop_back();
  return runner;
}

void WorkerPool::helper_main() {
  install_signal_stack();
  BlockRunner runner;
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || (job_ != nullptr && generation_ != seen); });
    if (stopping_) return;
    seen = generation_;
    Job& job = *job_;
    ++active_;
    lock.unlock();
    work_on(job, runner);
    lock.lock();
    if (--active_ == 0) idle_.notify_all();
  }
}

void WorkerPool::watchdog_main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    watch_.wait(lock, [this] { return stopping_ || running_; });
    if (stopping_) return;
    const uint64_t watched = generation_;
    const auto over = [&] { return stopping_ || !running_ || generation_ != watched; };
    if (watch_.wait_for(lock, std::chrono::milliseconds(timeout_ms_), over)) continue;
    for (const pthread_t runner : runners_) interrupt_block(runner);
  }
}

}  // namespace nodewright::cpu
