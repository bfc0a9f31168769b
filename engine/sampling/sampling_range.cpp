#include "engine/sampling/sampling_range.h"

#include <fmt/format.h>

namespace nodewright {

std::optional<SamplingFault> sampling_fault(double temperature, int64_t top_k, double top_p, double min_p) {
  if (!(temperature >= 0 && temperature <= 1e4))
    return SamplingFault{"temperature", fmt::format("{} is outside 0 to 10000", temperature)};
  if (!(top_p >= 0 && top_p <= 1)) return SamplingFault{"top_p", fmt::format("{} is outside 0 to 1", top_p)};
  if (top_k < 0 || top_k > INT32_MAX)
    return SamplingFault{"top_k", fmt::format("{} is outside 0 to {}", top_k, INT32_MAX)};
  if (!(min_p >= 0 && min_p <= 1)) return SamplingFault{"min_p", fmt::format("{} is outside 0 to 1", min_p)};
  return std::nullopt;
}

std::optional<SamplingFault> sampling_fault(const Sampling& sampling) {
  if (sampling.top_p == 0) return SamplingFault{"top_p", "0 is outside 0 to 1, 0 excluded"};
  return sampling_fault(static_cast<double>(sampling.temperature), sampling.top_k, static_cast<double>(sampling.top_p),
                        static_cast<double>(sampling.min_p));
}

}  // namespace nodewright
