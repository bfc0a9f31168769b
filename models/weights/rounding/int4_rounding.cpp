#include "models/weights/rounding/int4_rounding.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace nodewright {
namespace {

constexpr float kLeastInt4 = -8, kMostInt4 = 7;
constexpr float kLastDivisor = 14, kDivisorStep = 0.25f;
constexpr size_t kErrorLanes = 16;  // a loop over a known number becomes vector instructions at -O2

// A whole number from -8 to 7. The last place of 3 * 2^22 is 1.
float whole_code(float value) { return std::min(std::max(value, kLeastInt4), kMostInt4) + 0x1.8p23f - 0x1.8p23f; }

float to_bf16_number(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

float squared_error(std::span<const float> values, float scale) {
  const float inverse = 1 / scale;
  float lanes[kErrorLanes] = {};
  const auto error = [&](float value) {
    const float left = value * inverse - whole_code(value * inverse);
    return left * left;
  };
  size_t i = 0;
  for (; i + kErrorLanes <= values.size(); i += kErrorLanes)
    for (size_t j = 0; j < kErrorLanes; ++j) lanes[j] += error(values[i + j]);
  float sum = std::accumulate(std::begin(lanes), std::end(lanes), 0.0f);
  for (; i < values.size(); ++i) sum += error(values[i]);
  return sum * scale * scale;
}

}  // namespace

float int4_scale(std::span<const float> values, float largest) {
  float best = 0, least_error = std::numeric_limits<float>::infinity();
  for (float divisor = kMostInt4; divisor <= kLastDivisor; divisor += kDivisorStep) {
    const float scale = std::max(to_bf16_number(largest / divisor), std::numeric_limits<float>::min());
    const float error = squared_error(values, scale);
    if (best == 0 || error < least_error) best = scale, least_error = error;
  }
  return best;
}

void pack_int4(std::span<const float> values, float scale, uint32_t* words) {
  for (size_t i = 0; i < values.size(); i += 8) {
    uint32_t word = 0;
    for (size_t j = 0; j < 8; ++j)
      word |= static_cast<uint32_t>(static_cast<int32_t>(whole_code(values[i + j] / scale)) + 8) << 4 * j;
    words[i / 8] = word;
  }
}

}  // namespace nodewright
