// y += kScale * bias: after a library product in fp32, whose own epilogue takes no bias in bf16.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct AddBias {
  InOut<float> y;      // [rows, y_stride], 16-byte aligned; each block touches its own row
  Frozen<bf16> bias;   // [outputs], 16-byte aligned
  In<int32_t> n_live;  // [1]
  int64_t outputs;     // elements of a row that count
  int64_t y_stride;    // elements between two rows
};

inline constexpr unsigned kAddBiasThreads = 256;
constexpr LaunchShape add_bias_shape(unsigned rows, int64_t outputs) {
  constexpr int64_t kOfBlock = 8 * static_cast<int64_t>(kAddBiasThreads);
  return {{static_cast<unsigned>((outputs + kOfBlock - 1) / kOfBlock), rows, 1}, {kAddBiasThreads, 1, 1}, 0};
}

}  // namespace nodewright
