// y = norm(x) in fp32: the hidden states after the last layer, as an output of the step.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

struct NormHidden {
  ResidualIn from;      // never gained; its x_next is empty
  PartialOut<float> y;  // [rows, cols]
  In<int32_t> n_live;   // [1]
  int64_t stride;       // elements between two rows of x
};

// Constants: kNorm (kernels_src/residual/norm.h), kPostNorm.
inline constexpr unsigned kNormHiddenThreads = 256;
constexpr LaunchShape norm_hidden_shape(unsigned rows) { return {{rows, 1, 1}, {kNormHiddenThreads, 1, 1}, 4 * 32}; }

}  // namespace nodewright
