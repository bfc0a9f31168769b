// y = norm(x) in fp32: the hidden states behind the last layer, for whoever asks for them.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct NormHidden {
  In<float> x;                   // [rows, stride], the first gain.count elements of a row count
  Frozen<bf16> gain;             // [cols]
  Optional<Frozen<bf16>> shift;  // [cols] of a LayerNorm, else empty
  Out<float> y;                  // [rows, cols]
  In<int32_t> n_live;            // [1]
  int64_t stride;                // elements between two rows of x
  float eps;                     // added to the mean square, or to the variance

  // In a family with post norms (kPostNorm) x + norm(projected) * post_gain stands for x; else empty.
  Optional<In<float>> projected;     // [rows, stride], the first cols elements of a row count
  Optional<Frozen<bf16>> post_gain;  // [cols]
};

// Constants: kNorm (kernels_src/residual/norm.h), kPostNorm.
inline constexpr unsigned kNormHiddenThreads = 256;
constexpr LaunchShape norm_hidden_shape(unsigned rows) { return {{rows, 1, 1}, {kNormHiddenThreads, 1, 1}, 4 * 32}; }

}  // namespace nodewright
