#include "models/config/rope_frequencies.h"

#include <cmath>
#include <numbers>

namespace nodewright {
namespace {

// Long waves are divided by the factor, short ones kept, those between the two wavelengths blended.
float llama3_scaled(float frequency, const RopeConfig& rope) {
  const auto original = static_cast<double>(rope.original);
  const auto factor = static_cast<float>(rope.factor), low = static_cast<float>(rope.low);
  const auto span = static_cast<float>(rope.high - rope.low);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;  // tokens per turn
  if (wavelength > static_cast<float>(original / rope.low)) return frequency / factor;
  if (wavelength < static_cast<float>(original / rope.high)) return frequency;
  const float kept = (static_cast<float>(original) / wavelength - low) / span;  // share of the unscaled frequency
  return (1.0f - kept) * frequency / factor + kept * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, int64_t head_dim) {
  std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float frequency = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
    if (rope.type == RopeType::plain) frequencies[i] = frequency;
    if (rope.type == RopeType::linear) frequencies[i] = frequency / static_cast<float>(rope.factor);
    if (rope.type == RopeType::llama3) frequencies[i] = llama3_scaled(frequency, rope);
  }
  return frequencies;
}

}  // namespace nodewright
