// The element type of weights in device memory, and the stride that it leads to.
#pragma once

#include <cstdint>

#include "kernels_src/args.h"

namespace nodewright {

// Checkpoints are converted to it when they are loaded.
using WeightElement = bf16;

// Elements from one row of a matrix to the next. Each row begins at a multiple of 16 bytes, which a thread loads at
// once.
constexpr int64_t row_stride(int64_t columns) {
  constexpr int64_t kWord = 16 / sizeof(WeightElement);
  return (columns + kWord - 1) / kWord * kWord;
}

}  // namespace nodewright
