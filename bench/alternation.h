// Takes turns: what is compared is measured in the same minutes, and nobody always goes first.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "bench/steady_core.h"

namespace nodewright {

// Calls every variant once a repetition, the first one rotating; `counted` is false in the `warm_up` repetitions
// before. Each repetition begins on a core that runs at full speed; what that costs the caches, the first variant pays,
// which is another one each time.
inline void alternate(std::span<const std::function<void(bool counted)>> variants, int warm_up, int repetitions,
                      SteadyCore& core) {
  for (int repetition = -warm_up; repetition < repetitions; ++repetition) {
    core.settle();
    for (size_t i = 0; i < variants.size(); ++i)
      variants[(i + static_cast<size_t>(repetition + warm_up)) % variants.size()](repetition >= 0);
  }
}

}  // namespace nodewright
