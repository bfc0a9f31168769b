// SIGINT, SIGTERM and SIGHUP, kept from a thread and from those that it starts: what must not be cut short holds them
// back, and threads of a library leave them to the threads of the program.
#pragma once

#include <signal.h>

namespace nodewright {

// What comes meanwhile is delivered when it ends.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

}  // namespace nodewright
