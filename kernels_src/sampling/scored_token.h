// A token and the score that chose it.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct ScoredToken {
  float score;
  int32_t token;  // negative: there is none
};

// Below this a choice takes the largest logit; from it on it is drawn.
inline constexpr float kLeastTemperature = 1e-5f;

}  // namespace nodewright
