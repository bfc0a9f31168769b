// y += B h of each row's own adapter: the second half of what a LoRA adapter adds to a product.
#pragma once

#include "kernels_src/launch_shape.h"
#include "kernels_src/product/end/adapter_in.h"

namespace nodewright {

struct Expand {
  InOut<float> y;  // [rows, y_stride]; each element is touched by one thread
  AdapterIn adapter;
  Settled<int32_t> n_live;  // [1] rows that count
  int64_t outputs;          // elements of a row of y
  int64_t y_stride;         // elements between two rows of y
  int64_t parts;            // of the matrix
  int64_t second, third;    // outputs that part 1 and part 2 begin with
};

// Constants: kAdapterRank; kScale, what B h is multiplied by, as the bits of a float; 0: 1.
inline constexpr unsigned kExpandThreads = 256;
constexpr LaunchShape expand_shape(unsigned rows, int64_t outputs) {
  const auto blocks = static_cast<unsigned>((outputs + kExpandThreads - 1) / kExpandThreads);
  return {{blocks, rows, 1}, {kExpandThreads, 1, 1}, 0};
}

}  // namespace nodewright
