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

// Wider than a Sampling, so that what a user wrote is judged before it is cut.
std::optional<SamplingFault> sampling_fault(double temperature, int64_t top_k, double top_p, double min_p);
inline std::optional<SamplingFault> sampling_fault(const Sampling& sampling) {
  return sampling_fault(static_cast<double>(sampling.temperature), sampling.top_k, static_cast<double>(sampling.top_p),
                        static_cast<double>(sampling.min_p));
}

}  // namespace nodewright
