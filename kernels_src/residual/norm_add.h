// residual += norm(x): the end of a block whose output is normed before it joins the residual stream.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct NormAdd {
  In<float> x;                       // [rows, stride], the first gain.count elements of a row count
  Frozen<bf16> gain;                 // [cols]
  InOut<float> residual;             // [rows, stride]; each block touches its own row
  In<int32_t> n_live;                // [1]
  int64_t stride;                    // elements between two rows
  float eps;                         // added to the mean square
  Optional<Frozen<bf16>> bias = {};  // [cols] that is added to x first; empty if kBias is 0
};

// Constants: kNorm (kernels_src/residual/norm.h), not a LayerNorm; kBias.
inline constexpr unsigned kNormAddThreads = 256;
constexpr LaunchShape norm_add_shape(unsigned rows) { return {{rows, 1, 1}, {kNormAddThreads, 1, 1}, 4 * 32}; }

}  // namespace nodewright
