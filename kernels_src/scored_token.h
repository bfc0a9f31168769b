// A token and the score that chose it.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct ScoredToken {
  float score;
  int32_t token;  // negative: there is none
};

}  // namespace nodewright
