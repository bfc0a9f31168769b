// How long work of the host takes, and the tokens that measured steps are given.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

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

}  // namespace nodewright
