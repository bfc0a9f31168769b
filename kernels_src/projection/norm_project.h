// y = norm(x) . W^T + bias: the qkv projection and the logits.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/sampling/scored_token.h"

namespace nodewright {

struct NormProject {
  Optional<In<float>> x;         // [rows, stride] residual, padded with zeros to stride
  Optional<Frozen<bf16>> gain;   // [cols]
  Optional<Frozen<bf16>> shift;  // [cols] of a LayerNorm, else empty
  Frozen<bf16> weight;           // [outputs, stride]
  Optional<Frozen<bf16>> bias;   // [outputs], or empty
  Out<float> y;                  // [rows, y_stride]
  // [rows, blocks] the largest of each block's outputs, no token if one is NaN; of one row or in tiles, or empty
  Optional<Out<ScoredToken>> best;
  In<int32_t> n_live;  // [1] rows that count; not read at bucket 1
  int64_t outputs;     // rows of weight
  int64_t y_stride;    // elements between two rows of y
  float eps;           // added to the mean square, or to the variance

  // In a family with post norms (kPostNorm) x + norm(projected) * post_gain stands for x; else empty.
  Optional<In<float>> projected;     // [rows, stride], the first cols elements of a row count
  Optional<Frozen<bf16>> post_gain;  // [cols]
  Optional<Out<float>> x_next;       // [rows, stride] that sum, padded with zeros, for later kernels; or empty

  // In tiles whose x the kernel before has multiplied by the gain (kGained) these stand for x and gain; else empty.
  Optional<In<bf16>> gained;    // [rows, stride], stride = cols
  Optional<In<float>> squares;  // [parts, rows rounded up to 8] parts of the sums of squares of x

  // Of logits in tiles with `best`, else empty: a row whose choice takes the largest leaves no y, unless all are kept.
  Optional<In<float>> temperature;  // [rows]
  Optional<In<int32_t>> keeps_all;  // [1] 0: no
};

// Of a launch with `best`: the shape of one without, and each thread's best so far in shared memory, since registers
// are all in use.
constexpr LaunchShape with_best(LaunchShape shape) {
  shape.shared_bytes += static_cast<unsigned>(sizeof(ScoredToken)) * shape.block[0];
  return shape;
}

}  // namespace nodewright
