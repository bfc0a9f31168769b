// y = scale * left + right + gain: a kernel with every role that only writes its output.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct Mix {
  In<float> left;                     // any length, read round and round
  In<float> right;                    // any length
  Optional<Frozen<float>> gain = {};  // any length, or empty
  Out<float> y;                       // [n]
  float scale;
};

inline constexpr unsigned kMixThreads = 64;
constexpr LaunchShape mix_shape(uint64_t n) {
  return launch_shape_1d(static_cast<unsigned>((n + kMixThreads - 1) / kMixThreads), kMixThreads);
}

}  // namespace nodewright
