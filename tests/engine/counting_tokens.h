// Prompts whose tokens say where they came from.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace nodewright {

// `first`, first + 1, ...
inline std::vector<int32_t> counting(int32_t first, int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

}  // namespace nodewright
