// y = norm(x) . W^T + bias: the qkv projection and the logits.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"
#include "kernels_src/sampling/scored_token.h"

namespace nodewright {

struct NormProject {
  ResidualIn from;  // and its norm
  WeightIn w;
  RowsOut<float> to;
  // [rows, parts] the largest of each part of the outputs, no token if one is NaN; of one row or in tiles, or empty
  Optional<PartialOut<ScoredToken>> best = {};
  In<int32_t> n_live;  // [1] rows that count; not read at bucket 1

  // For logits in tiles with `best`; empty otherwise. Greedy rows then leave no y, unless keeps_all says so.
  Optional<In<float>> temperature = {};  // [rows]
  Optional<In<int32_t>> keeps_all = {};  // [1] 0: no
};

// The shape of a launch with `best`: each thread's best so far lies in shared memory, since registers are all in use.
constexpr LaunchShape with_best(LaunchShape shape) {
  shape.shared_bytes += static_cast<unsigned>(sizeof(ScoredToken)) * shape.block[0];
  return shape;
}

}  // namespace nodewright
