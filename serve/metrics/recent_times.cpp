#include "serve/metrics/recent_times.h"

#include <algorithm>

namespace nodewright {

void RecentTimes::add(double seconds, int64_t times, Clock::time_point now) {
  if (ring_.size() < kMost) {
    ring_.push_back({now, seconds, times});
    return;
  }
  ring_[next_] = {now, seconds, times};
  next_ = (next_ + 1) % kMost;
}

void RecentTimes::add(const RecentTimes& other) {
  ring_.insert(ring_.end(), other.ring_.begin(), other.ring_.end());
  std::ranges::stable_sort(ring_, {}, &Seen::at);
  if (ring_.size() > kMost) ring_.erase(ring_.begin(), ring_.end() - kMost);
  next_ = 0;
}

RecentTimes::Quantiles RecentTimes::quantiles(Clock::time_point now) const {
  std::vector<Seen> seen;
  Quantiles found;
  for (const Seen& one : ring_) {
    if (now - one.at > kWindow) continue;
    seen.push_back(one);
    found.count += one.times;
  }
  std::ranges::sort(seen, {}, &Seen::seconds);
  // The smallest that at least this share of all does not exceed.
  const auto at = [&](double share) {
    double left = share * static_cast<double>(found.count);
    for (const Seen& one : seen) {
      left -= static_cast<double>(one.times);
      if (left <= 0) return one.seconds;
    }
    return 0.0;
  };
  found.median = at(0.5);
  found.p99 = at(0.99);
  return found;
}

}  // namespace nodewright
