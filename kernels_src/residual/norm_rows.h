// y = norm(x), rounded to bf16: what a library product multiplies.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct NormRows {
  In<float> x;  // [rows, stride], the first kCols elements of a row count; stride: kCols rounded up to 8
  Optional<Frozen<bf16>> gain = {};   // [cols]; empty if kNorm is none
  PartialOut<bf16> y;                 // [rows, stride], zero from cols on
  In<int32_t> n_live;                 // [1]
  float eps;                          // added to the mean square, or to the variance
  Optional<Frozen<bf16>> shift = {};  // [cols] of a LayerNorm, or empty
};

// Constants: kCols; kNorm (kernels_src/residual/norm.h).
inline constexpr unsigned kNormRowsThreads = 256;
constexpr LaunchShape norm_rows_shape(unsigned rows) { return {{rows, 1, 1}, {kNormRowsThreads, 1, 1}, 4 * 32}; }

}  // namespace nodewright
