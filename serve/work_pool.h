// A few threads for what takes longer than an I/O thread may: parsing, tokenizing, templates, grammars.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nodewright {

// Thread-safe.
class WorkPool {
 public:
  // `most_waiting`: jobs that wait for a thread.
  WorkPool(size_t threads, size_t most_waiting);
  ~WorkPool();  // stop()
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // False where too many wait already: the job is dropped. It must not throw.
  bool post(std::function<void()> job);
  // Takes no more, does what waits, and waits for its threads, of which none may call this.
  void stop();

 private:
  void work();

  size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> jobs_;
  bool ended_ = false;
  std::mutex stopping_;               // one thread joins
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace nodewright
