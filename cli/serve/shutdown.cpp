#include "cli/serve/shutdown.h"

#include <ctime>
#include <utility>

namespace nodewright::cli {
namespace {

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  struct sigaction hangup {};  // nohup has it ignored
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  return signals;
}

}  // namespace

Shutdown::Shutdown(std::chrono::seconds patience, std::function<void()> drain, std::function<void()> abort)
    : patience_(patience), drain_(std::move(drain)), abort_(std::move(abort)) {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
  thread_ = std::thread([this] { wait(); });
}

Shutdown::~Shutdown() {
  ended_ = true;
  thread_.join();
  if (signal_ == 0) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Shutdown::wait() {
  using Clock = std::chrono::steady_clock;
  const sigset_t signals = stop_signals();
  const timespec look{.tv_sec = 0, .tv_nsec = 50'000'000};
  Clock::time_point limit;
  bool aborted = false;
  while (!ended_) {
    const int came = sigtimedwait(&signals, nullptr, &look);
    if (came > 0 && signal_ == 0) {
      signal_ = came;
      limit = Clock::now() + patience_;
      drain_();
    } else if (came > 0 || (signal_ != 0 && Clock::now() >= limit)) {
      if (!std::exchange(aborted, true)) abort_();
    }
  }
}

}  // namespace nodewright::cli
