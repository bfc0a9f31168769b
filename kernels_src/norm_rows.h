// y = norm(x), rounded to bf16: what a library product multiplies.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct NormRows {
  In<float> x;         // [rows, stride], the first gain.count elements of a row count
  Frozen<bf16> gain;   // [cols]
  Out<bf16> y;         // [rows, stride], zero from cols on
  In<int32_t> n_live;  // [1]
  int64_t stride;      // elements between two rows of x and of y, a multiple of 8
  float eps;           // added to the mean square
};

// Constant: kNorm (kernels_src/norm.h), not a LayerNorm.
inline constexpr unsigned kNormRowsThreads = 256;
constexpr LaunchShape norm_rows_shape(unsigned rows) { return {{rows, 1, 1}, {kNormRowsThreads, 1, 1}, 4 * 32}; }

}  // namespace nodewright
