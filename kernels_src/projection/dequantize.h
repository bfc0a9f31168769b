// FP8 weights as bf16: for a product of the library.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// Constants: kStride, and those of product/format/weights.cuh.
struct Dequantize {
  Frozen<bf16> weight;  // as of WeightIn
  Out<bf16> y;          // [outputs, kStride]
  int64_t outputs;
};

inline constexpr unsigned kDequantizeThreads = 256;
// A thread takes 16 columns of a row.
constexpr LaunchShape dequantize_shape(int64_t outputs, int64_t stride) {
  const int64_t words = outputs * (stride / 16);
  return launch_shape_1d(static_cast<unsigned>((words + kDequantizeThreads - 1) / kDequantizeThreads),
                         kDequantizeThreads);
}

}  // namespace nodewright
