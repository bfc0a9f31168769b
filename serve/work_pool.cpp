#include "serve/work_pool.h"

#include <utility>

#include "runtime/host/held_signals.h"

namespace nodewright {

WorkPool::WorkPool(size_t threads, size_t most_waiting) : most_waiting_(most_waiting) {
  const HeldSignals held;  // signals are for the thread that waits for them
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { work(); });
    pthread_setname_np(threads_.back().native_handle(), "worker");
  }
}

WorkPool::~WorkPool() { stop(); }

void WorkPool::stop() {
  const std::lock_guard stopping(stopping_);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  came_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

bool WorkPool::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || jobs_.size() >= most_waiting_) return false;
    jobs_.push_back(std::move(job));
  }
  came_.notify_one();
  return true;
}

void WorkPool::work() {
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [&] { return ended_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace nodewright
