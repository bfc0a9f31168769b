#include "bench/spread.h"

#include <algorithm>

namespace nodewright {

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

Tail tail_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](size_t percent) { return values[(values.size() * percent + 99) / 100 - 1]; };
  return {at(50), at(99), values.back()};
}

}  // namespace nodewright
