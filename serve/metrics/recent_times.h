// Durations of the last seconds and their quantiles: what a reader who watches wants, where a histogram since the start
// would hide a change.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nodewright {

// Not thread-safe. Keeps the last kMost observations and no more memory than they take.
class RecentTimes {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMost = 4096;
  static constexpr std::chrono::seconds kWindow{10};

  // `seconds`, seen `times` times at `now`.
  void add(double seconds, int64_t times = 1, Clock::time_point now = Clock::now());

  // What another has seen, too; of more than kMost the latest.
  void add(const RecentTimes& other);

  // Quantiles of the times added within kWindow before `now`. Seconds; 0 without any.
  struct Quantiles {
    int64_t count = 0;
    double median = 0, p99 = 0;
  };
  Quantiles quantiles(Clock::time_point now = Clock::now()) const;

 private:
  struct Seen {
    Clock::time_point at;
    double seconds = 0;
    int64_t times = 0;
  };
  std::vector<Seen> ring_;
  size_t next_ = 0;  // the oldest, once the ring is full
};

}  // namespace nodewright
