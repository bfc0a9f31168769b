// Takes turns: what is compared is measured in the same minutes, and nobody always goes first.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace nodewright {

// Calls every variant once a repetition, the first one rotating; `counted` is false in the `warm_up` repetitions
// before.
inline void alternate(std::span<const std::function<void(bool counted)>> variants, int warm_up, int repetitions) {
  for (int repetition = -warm_up; repetition < repetitions; ++repetition)
    for (size_t i = 0; i < variants.size(); ++i)
      variants[(i + static_cast<size_t>(repetition + warm_up)) % variants.size()](repetition >= 0);
}

}  // namespace nodewright
