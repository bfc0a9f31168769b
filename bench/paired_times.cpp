#include "bench/paired_times.h"

#include <cmath>
#include <vector>

#include "bench/spread.h"

namespace nodewright {

PairedGain paired_gain(std::span<const double> before, std::span<const double> now) {
  std::vector<double> differences, distances;
  for (size_t i = 0; i < before.size(); ++i) differences.push_back(before[i] - now[i]);
  const double gain = spread_of(differences).median;
  for (const double difference : differences) distances.push_back(std::abs(difference - gain));
  if (distances.empty()) return {};
  // Normal noise: a deviation is 1.4826 distances, and a median errs by 1.2533 / sqrt(n) of it.
  const double deviation = 1.4826 * spread_of(distances).median;
  return {gain, 1.2533 * deviation / std::sqrt(static_cast<double>(before.size()))};
}

}  // namespace nodewright
