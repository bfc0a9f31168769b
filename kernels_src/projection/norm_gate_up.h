// y = f(h . Wgate^T) * (h . Wup^T) or, without a gate, f(h . Wup^T + bias), with h = norm(x): the first half of a
// feed-forward block.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

struct NormGateUp {
  ResidualIn from;      // and its norm
  Frozen<bf16> weight;  // [2 * intermediate, stride], row 2i gate i, row 2i + 1 up i; without a gate [intermediate, ..]
  Optional<Frozen<bf16>> bias = {};  // [outputs], or empty
  PartialOut<bf16> y;                // [rows, y_stride]
  In<int32_t> n_live;                // [1] rows that count; not read at bucket 1
  int64_t outputs;                   // rows of weight
  int64_t y_stride;                  // elements between two rows of y
  float eps;                         // added to the mean square, or to the variance
};

}  // namespace nodewright
