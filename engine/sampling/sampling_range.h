// The one place that says which temperatures, top-k, top-p and min-p there are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/device/step_inputs.h"

namespace nodewright {

struct SamplingFault {
  std::string field;  // "temperature", "top_k", "top_p" or "min_p"
  std::string detail;
};

// Wider than a Sampling, so that what a user wrote is judged before it is cut. A top_p of 0 is the likeliest token
// alone: sampling_of() makes a top_k of 1 of it.
std::optional<SamplingFault> sampling_fault(double temperature, int64_t top_k, double top_p, double min_p);
// The same for an engine's options, where a top_p of 0 cannot occur.
std::optional<SamplingFault> sampling_fault(const Sampling& sampling);

}  // namespace nodewright
