// Keeps a measuring thread on a processor core that runs at full speed.
#pragma once

#include <sched.h>

#include <cstddef>
#include <vector>

namespace nodewright {

// On a host shared with others a core is slowed by its neighbours for seconds, then another one is: of sixteen on an
// H200's host, three to seven took 1.7 times as long as the rest (bench/results/2026-11-21-h200-cores.txt). What a core
// does is seen before a sample is taken, not from the sample. The thread may run on every core it could before once
// this is destroyed; threads started in between stay on its core.
class SteadyCore {
 public:
  // Looks at every core that the thread may run on: some 0.2 ms each.
  SteadyCore();
  ~SteadyCore();
  SteadyCore(const SteadyCore&) = delete;
  SteadyCore& operator=(const SteadyCore&) = delete;

  // Call before samples: moves to the next core that runs at full speed, if this one does not. Stays where all are
  // slow. Leaves caches as any other work does.
  void settle();

  size_t moves() const { return moves_; }

 private:
  bool move_to(size_t core);

  cpu_set_t allowed_;
  std::vector<int> cores_;  // by number; empty where the system does not say
  size_t core_ = 0;         // of cores_, the one that the thread is on
  double best_us_ = 0;      // of the fixed work, on any core so far
  size_t moves_ = 0;
};

}  // namespace nodewright
