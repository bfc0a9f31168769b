// y = norm(x), rounded to bf16: what a product of normed rows multiplies.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

struct NormRows {
  ResidualIn from;     // never gained; stride: kCols rounded up to 8
  PartialOut<bf16> y;  // [rows, stride], zero from cols on
  In<int32_t> n_live;  // [1]
};

// Constants: kCols; kNorm (kernels_src/residual/norm.h), kPostNorm.
inline constexpr unsigned kNormRowsThreads = 256;
constexpr LaunchShape norm_rows_shape(unsigned rows) { return {{rows, 1, 1}, {kNormRowsThreads, 1, 1}, 4 * 32}; }

}  // namespace nodewright
