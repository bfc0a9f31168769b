// SIGINT, SIGTERM and SIGHUP of a server, on a thread of its own: the first drains, the second aborts. Under nohup
// SIGHUP stays ignored. docs/serving.md.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

namespace nodewright::cli {

// Holds them back from the thread that makes it, and so from all that it starts afterwards, while it lives; after the
// first one to the end of the process, whose exit code later ones do not change.
class Shutdown {
 public:
  // `drain` and `abort`: each called once at most, on a thread of this. `patience`: after drain() until abort() comes
  // by itself; 0: at once.
  Shutdown(std::chrono::seconds patience, std::function<void()> drain, std::function<void()> abort);
  ~Shutdown();
  Shutdown(const Shutdown&) = delete;
  Shutdown& operator=(const Shutdown&) = delete;

  // The signal that came first, or 0.
  int signal() const { return signal_; }

 private:
  void wait();

  std::chrono::seconds patience_;
  std::function<void()> drain_, abort_;
  sigset_t before_;
  std::atomic<int> signal_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nodewright::cli
