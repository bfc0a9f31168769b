// The middle and the ends of a sample.
#pragma once

#include <vector>

namespace nodewright {

struct Spread {
  double median = 0, least = 0, most = 0;
};
// All zero when there is no value.
Spread spread_of(std::vector<double> values);

// What most of a sample is below.
struct Tail {
  double median = 0, p99 = 0, worst = 0;
};
// The least values that half, and 99 in 100, of the sample do not exceed. All zero when there is no value.
Tail tail_of(std::vector<double> values);

}  // namespace nodewright
