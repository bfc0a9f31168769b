// Quantized weights as bf16: for a product of the library.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/product/format/weight_layout.h"

namespace nodewright {

// Constants: kStride, and those of product/format/weights.cuh.
struct Dequantize {
  Frozen<bf16> weight;  // as of WeightIn
  Out<bf16> y;          // [outputs, kStride]
  int64_t outputs;
};

inline constexpr unsigned kDequantizeThreads = 256;
// A thread takes a word of 16 bytes.
constexpr LaunchShape dequantize_shape(const WeightLayout& weights, int64_t outputs, int64_t stride) {
  const int64_t words = outputs * (stride / weights.word_columns());
  return launch_shape_1d(static_cast<unsigned>((words + kDequantizeThreads - 1) / kDequantizeThreads),
                         kDequantizeThreads);
}

}  // namespace nodewright
