// The middle and the ends of a sample.
#pragma once

#include <vector>

namespace nodewright {

struct Spread {
  double median = 0, least = 0, most = 0;
};
// All zero when there is no value.
Spread spread_of(std::vector<double> values);

}  // namespace nodewright
