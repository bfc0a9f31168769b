// y[m] = x[rows[m]]: rows of the residual that a step has left, wherever in the step's memory its bucket keeps them.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

struct GatherResidual {
  In<float> from;      // the activations of steps
  In<int64_t> places;  // [2] index in `from` of the residual, [step rows, stride]; of what joins it, or -1
  In<int32_t> rows;    // [rows] of the step
  In<int32_t> n_live;  // [1] rows that are stored
  Optional<Frozen<bf16>> post_gain = {};  // [cols] of the post norm of the last block (kPostNorm), or empty
  PartialOut<float> y;                    // [rows, stride]
  int64_t stride;
  float eps;              // added to the mean square
  ResidualOut next = {};  // with kLeavesGained: y times the gain of the next norm, and its squares in one part
};

// Constants: kNorm (kernels_src/residual/norm.h), not a LayerNorm where kPostNorm is set; kPostNorm; kLeavesGained, not
// with kPostNorm. With kPostNorm, and where something joins the residual, y = x + norm(joining) * post_gain.
inline constexpr unsigned kGatherResidualThreads = 256;
constexpr LaunchShape gather_residual_shape(unsigned rows) {
  return {{rows, 1, 1}, {kGatherResidualThreads, 1, 1}, 4 * 32};
}

}  // namespace nodewright
