#include "bench/steady_core.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace nodewright {
namespace {

constexpr double kFullSpeed = 1.15;  // of the best time of the fixed work, and still full speed
constexpr int kRounds = 8000;        // of the fixed work: some 15 us

// Independent chains, so that a neighbour who shares the core's units is felt.
double fixed_work_us() {
  const auto start = std::chrono::steady_clock::now();
  uint64_t a = 1, b = 2, c = 3, d = 4;
  for (int i = 0; i < kRounds; ++i) {
    a = a * 0x9e3779b97f4a7c15u + 1;
    b = (b ^ (b << 13)) + a;
    c = c * 0xbf58476d1ce4e5b9u + 1;
    d = (d ^ (d >> 7)) + c;
  }
  [[maybe_unused]] static volatile uint64_t sink;  // or the compiler drops the work
  sink = a + b + c + d;
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// The least of a few: an interrupt is no slow core.
double core_us() { return std::min({fixed_work_us(), fixed_work_us(), fixed_work_us()}); }

}  // namespace

SteadyCore::SteadyCore() {
  CPU_ZERO(&allowed_);
  if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) return;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed_)) cores_.push_back(core);
  for (size_t i = 0; i < cores_.size(); ++i) {
    if (!move_to(i)) continue;
    const double us = core_us();
    best_us_ = best_us_ == 0 ? us : std::min(best_us_, us);
  }
  settle();
  moves_ = 0;
}

SteadyCore::~SteadyCore() {
  if (!cores_.empty()) sched_setaffinity(0, sizeof allowed_, &allowed_);
}

bool SteadyCore::move_to(size_t core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores_[core], &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) return false;
  core_ = core;
  return true;
}

void SteadyCore::settle() {
  for (size_t tries = 0; tries < cores_.size(); ++tries) {
    const double us = core_us();
    best_us_ = std::min(best_us_, us);
    if (us <= kFullSpeed * best_us_) return;
    if (move_to((core_ + 1) % cores_.size())) ++moves_;
  }
}

}  // namespace nodewright
