// y = silu(h . Wgate^T) * (h . Wup^T) with h = rms_norm(x, gain): the first half of the SwiGLU feed-forward.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct NormGateUp {
  In<float> x;          // [rows, stride] residual, padded with zeros to stride
  Frozen<bf16> gain;    // [cols]
  Frozen<bf16> weight;  // [2 * intermediate, stride], row 2i gate i, row 2i + 1 up i
  Out<bf16> y;          // [rows, y_stride]
  In<int32_t> n_live;   // [1] rows that count; not read at bucket 1
  int64_t outputs;      // rows of weight: 2 * intermediate
  int64_t y_stride;     // elements between two rows of y
  float eps;
};

}  // namespace nodewright
