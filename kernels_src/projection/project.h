// y = x . W^T + bias: the attention output and the down projection where a norm comes before the residual sum.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct Project {
  In<bf16> x;                        // [rows, x_stride], the first cols elements of a row count
  Frozen<bf16> weight;               // [outputs, stride]
  Optional<Frozen<bf16>> bias = {};  // [outputs], or empty
  PartialOut<float> y;               // [rows, y_stride], the first outputs elements of a row
  In<int32_t> n_live;                // [1] rows that count; not read at bucket 1
  int64_t outputs;                   // rows of weight
  int64_t x_stride;                  // elements between two rows of x
  int64_t y_stride;
};

}  // namespace nodewright
