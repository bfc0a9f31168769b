// Whether one of two things that were timed in turns is faster, or only seems so.
#pragma once

#include <span>

namespace nodewright {

struct PairedGain {
  double gain = 0;   // median of the differences, in the unit of the times: above 0 where `now` is faster
  double error = 0;  // of that median: a standard error, from the median of the differences' distances to it
};

// `before` and `now`: as many times, taken in turns, so that what drifts is in both. All zero where there are none.
PairedGain paired_gain(std::span<const double> before, std::span<const double> now);

}  // namespace nodewright
