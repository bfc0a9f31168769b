#include "models/weights/drawn_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>

namespace nodewright {
namespace {

constexpr float kRootOfThree = 1.7320508f;  // half the width of a uniform distribution of deviation 1
constexpr float kSpreadOfVectors = 0.1f;

// SplitMix64 (Steele, Lea, Flood, 2014).
uint64_t mixed(uint64_t state) {
  state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9u;
  state = (state ^ state >> 27) * 0x94d049bb133111ebu;
  return state ^ state >> 31;
}

bf16 rounded(float v) { return {static_cast<uint16_t>((std::bit_cast<uint32_t>(v) + 0x8000u) >> 16)}; }

constexpr float kMostFp8 = 448;

// For each 16-bit integer the e4m3 code of kMostFp8 / 32768 times that integer, rounded towards zero.
std::span<const uint8_t, 65536> fp8_codes() {
  static const std::array<uint8_t, 65536> codes = [] {
    std::array<uint8_t, 65536> made{};
    for (size_t i = 0; i < made.size(); ++i) {
      const auto number = static_cast<int16_t>(i);
      const float size = std::abs(static_cast<float>(number)) / 32768 * kMostFp8;
      const uint32_t bits = std::bit_cast<uint32_t>(size * 0x1p-120f);  // an exponent's bias of 127 in place of 7
      made[i] = static_cast<uint8_t>((number < 0 ? 0x80u : 0u) | bits >> 20);
    }
    return made;
  }();
  return codes;
}

// The same on every platform.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

DrawnTensor::DrawnTensor(const TensorInfo& tensor, int64_t cols) : seed_(hash_of(tensor.name)) {
  const bool is_vector = tensor.shape.size() == 1;
  mean_ = is_vector && tensor.name.ends_with(".weight") ? 1.0f : 0.0f;
  half_width_ = kRootOfThree * (is_vector ? kSpreadOfVectors : 1 / std::sqrt(static_cast<float>(cols)));
}

// f(i, number): the 16-bit numbers of a row.
template <class F>
void DrawnTensor::each(int64_t row, size_t count, F f) const {
  const uint64_t start = mixed(seed_ + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(row + 1));
  for (size_t i = 0; i < count; i += 4) {
    uint64_t bits = mixed(start + i);
    for (size_t j = i; j < count && j < i + 4; ++j, bits >>= 16) f(j, static_cast<int16_t>(bits));
  }
}

void DrawnTensor::row(int64_t row, std::span<bf16> values) const {
  const float scale = half_width_ / 32768;
  each(row, values.size(),
       [&](size_t i, int16_t number) { values[i] = rounded(mean_ + scale * static_cast<float>(number)); });
}

void DrawnTensor::fp8_row(int64_t row, std::span<uint8_t> codes) const {
  each(row, codes.size(), [&](size_t i, int16_t number) { codes[i] = fp8_codes()[static_cast<uint16_t>(number)]; });
}

float DrawnTensor::fp8_scale() const { return half_width_ / kMostFp8; }

void DrawnTensor::int4_row(int64_t row, std::span<uint8_t> codes) const {
  each(row, codes.size(),
       [&](size_t i, int16_t number) { codes[i] = static_cast<uint8_t>(std::min((number + 0x8800) >> 12, 15)); });
}

float DrawnTensor::int4_scale() const { return half_width_ / 8; }

}  // namespace nodewright
