// How long work of the host takes, the tokens that measured steps are given, and the keys that their rows read.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "models/config/model_config.h"

namespace nodewright {

inline double us_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// Any tokens do: the time of a step does not depend on them, but for the experts that rows have.
inline std::vector<int32_t> some_tokens(int64_t count, int64_t vocab, int64_t first = 0) {
  std::vector<int32_t> tokens;
  for (int64_t i = first; i < first + count; ++i) tokens.push_back(static_cast<int32_t>((i * 7919 + 1) % vocab));
  return tokens;
}

// Keys that a row attends to in all layers together, of `keys` that its sequence has: a windowed layer reads its
// window.
inline int64_t attended_keys(const ModelConfig& config, int64_t keys) {
  int64_t attended = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    attended += config.is_sliding(layer) ? std::min(keys, config.window) : keys;
  return attended;
}

}  // namespace nodewright
