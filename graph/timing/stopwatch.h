// Wall time between points of one function, in milliseconds.
#pragma once

#include <chrono>

namespace nodewright {

class Stopwatch {
 public:
  // Since construction or the last lap.
  double lap_ms() {
    const Clock::time_point now = Clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

}  // namespace nodewright
