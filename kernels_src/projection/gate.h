// y = f(gate) * up, out of the product that gives both: the middle of a feed-forward block of library products.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct Gate {
  In<bf16> x;          // [rows, x_stride]: element 2i gate i, element 2i + 1 up i
  Out<bf16> y;         // [rows, y_stride]
  In<int32_t> n_live;  // [1]
  int64_t outputs;     // elements of a row of y that count
  int64_t x_stride;    // multiples of 8, the first at least twice `outputs`
  int64_t y_stride;
};

// Constant: kActivation (kernels_src/projection/activation.h).
inline constexpr unsigned kGateThreads = 256;
constexpr LaunchShape gate_shape(unsigned rows, int64_t outputs) {
  return {
      {static_cast<unsigned>((outputs + 4 * kGateThreads - 1) / (4 * kGateThreads)), rows, 1}, {kGateThreads, 1, 1}, 0};
}

}  // namespace nodewright
