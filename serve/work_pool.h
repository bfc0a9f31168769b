// Threads for jobs that take longer than an I/O thread has: parsing, tokenizing, templates, grammars. Jobs of one
// client come in their order, clients take turns, and a job that takes long keeps nobody else waiting: its thread goes
// on at the lowest priority, and another one takes its place.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace nodewright {

struct WorkPoolOptions {
  size_t threads = 2;
  size_t most_waiting = 4096;  // jobs that wait for a thread; one client's may be three quarters of them
  // Jobs that have a thread and take long. One client's jobs have at most half of all threads.
  size_t most_slow = 16;
  std::chrono::milliseconds slow_after{50};  // a step of a small model on one core
};

// Thread-safe.
class WorkPool {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WorkPool(WorkPoolOptions options);
  ~WorkPool();  // stop(), however long it takes
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // False where too many wait already, or it has been stopped: the job is dropped. It must not throw, and should look
  // at is_stopping() from time to time. `watched`: longest() counts it.
  bool post(std::function<void()> job, const std::string& client = "", bool watched = true);
  // From the first stop() on.
  bool is_stopping() const { return ended_; }
  // How long the oldest watched job has been running.
  Clock::duration longest() const;
  size_t slow() const;  // jobs that have been found to take long, and go on

  // Takes no more, and waits so long for the jobs that there are, which see that it is_stopping(); not on a thread of
  // this. False: a job still runs, and uses what it was given.
  bool stop(std::chrono::milliseconds patience);

 private:
  struct Job {
    std::function<void()> run;
    bool watched = true;
  };
  struct Worker {
    std::thread thread;
    pid_t id = 0;
    std::string client;
    bool busy = false, slow = false, watched = false;
    Clock::time_point since;
  };

  void work(Worker& self);
  void watch();
  // Under mutex_.
  void add_worker();
  bool may_have_more(const std::string& client) const;
  bool take(Worker& self, Job& job);
  void join_ended(std::unique_lock<std::mutex>& lock);

  const WorkPoolOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable came_, began_, left_;
  std::map<std::string, std::deque<Job>> jobs_;  // by client; none of them empty
  std::list<std::string> turns_;                 // of clients with jobs, the next first
  std::map<std::string, size_t> running_;        // jobs of a client
  size_t waiting_ = 0, busy_ = 0, slow_ = 0;
  std::atomic<bool> ended_ = false;
  std::list<Worker> workers_, gone_;  // gone_: they have ended, and are joined by the watcher
  std::thread watcher_;               // last: it uses all of the above
};

}  // namespace nodewright
