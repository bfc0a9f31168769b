#include "models/weights/drawn_weights.h"

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

void DrawnTensor::row(int64_t row, std::span<bf16> values) const {
  const uint64_t start = mixed(seed_ + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(row + 1));
  const float scale = half_width_ / 32768;
  for (size_t i = 0; i < values.size(); i += 4) {
    uint64_t bits = mixed(start + i);
    for (size_t j = i; j < values.size() && j < i + 4; ++j, bits >>= 16)
      values[j] = rounded(mean_ + scale * static_cast<float>(static_cast<int16_t>(bits)));
  }
}

}  // namespace nodewright
