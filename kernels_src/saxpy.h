// y = a * x + y: the smallest kernel that reads, writes and waits; for examples, tests and measurements of graphs.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// y = a * x + y.
struct Saxpy {
  In<float> x;     // [n]
  InOut<float> y;  // [n]
  float a;
};

// Threads of a block.
inline constexpr unsigned kSaxpyThreads = 256;
// One thread for each of n elements.
constexpr LaunchShape saxpy_shape(uint64_t n) {
  return launch_shape_1d(static_cast<unsigned>((n + kSaxpyThreads - 1) / kSaxpyThreads), kSaxpyThreads);
}

}  // namespace nodewright
