#include "models/config/rope_frequencies.h"

#include <algorithm>
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

// Pairs before the ramp are kept, those after it divided by the factor.
struct YarnRamp {
  float first = 0, last = 0;

  YarnRamp(const RopeConfig& rope, int64_t dim) {
    const auto pair_of = [&](double turns) {  // the pair that makes `turns` turns within the original context
      const double tokens_of_turn = static_cast<double>(rope.original) / (turns * 2 * std::numbers::pi);
      return static_cast<double>(dim) * std::log(tokens_of_turn) / (2 * std::log(rope.theta));
    };
    double from = pair_of(rope.beta_fast), to = pair_of(rope.beta_slow);
    if (rope.truncate) from = std::floor(from), to = std::ceil(to);
    first = static_cast<float>(std::max(from, 0.0));
    last = static_cast<float>(std::min(to, static_cast<double>(dim - 1)));
    if (first == last) last += 0.001f;
  }
  float divided(size_t pair) const {
    return std::clamp((static_cast<float>(pair) - first) / (last - first), 0.0f, 1.0f);
  }
};

float yarn_scaled(float wave, float divided, const RopeConfig& rope) {
  return 1.0f / (static_cast<float>(rope.factor) * wave) * divided + 1.0f / wave * (1 - divided);
}

// Dynamic: a larger base for contexts beyond the original one.
double theta_of(const RopeConfig& rope, int64_t dim, int64_t context) {
  if (rope.type != RopeType::dynamic || context <= rope.original || dim <= 2) return rope.theta;
  const double grown = rope.factor * static_cast<double>(context) / static_cast<double>(rope.original);
  return rope.theta * std::pow(grown - (rope.factor - 1), static_cast<double>(dim) / static_cast<double>(dim - 2));
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, int64_t dim, int64_t context) {
  std::vector<float> frequencies(static_cast<size_t>(dim / 2));
  const auto& factors = context > rope.original ? rope.long_factors : rope.short_factors;
  const YarnRamp ramp(rope, dim);
  const auto theta = static_cast<float>(theta_of(rope, dim, context));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float wave = std::pow(theta, exponent), frequency = 1.0f / wave;
    if (rope.type == RopeType::plain || rope.type == RopeType::dynamic) frequencies[i] = frequency;
    if (rope.type == RopeType::linear) frequencies[i] = frequency / static_cast<float>(rope.factor);
    if (rope.type == RopeType::llama3) frequencies[i] = llama3_scaled(frequency, rope);
    if (rope.type == RopeType::yarn) frequencies[i] = yarn_scaled(wave, ramp.divided(i), rope);
    if (rope.type == RopeType::longrope) frequencies[i] = 1.0f / (static_cast<float>(factors[i]) * wave);
  }
  return frequencies;
}

std::vector<float> rotation_table(const ModelConfig& config, const RopeConfig* rope, int64_t context) {
  std::vector<float> table;
  if (rope) table = rope_frequencies(*rope, config.rotated(), context);
  const size_t rotated = table.size(), pairs = static_cast<size_t>(config.head_dim / 2);
  table.resize(pairs, 0.0f);
  if (!config.scales_turns()) return table;
  for (size_t i = 0; i < pairs; ++i) table.push_back(i < rotated ? static_cast<float>(rope->amplitude) : 1.0f);
  return table;
}

}  // namespace nodewright
