// y = f(h . Wgate^T) * (h . Wup^T) or, without a gate, f(h . Wup^T + bias), with h = norm(x): the first half of a
// feed-forward block.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct NormGateUp {
  Optional<In<float>> x;         // [rows, stride] residual, padded with zeros to stride
  Optional<Frozen<bf16>> gain;   // [cols]
  Optional<Frozen<bf16>> shift;  // [cols] of a LayerNorm, else empty
  Frozen<bf16> weight;  // [2 * intermediate, stride], row 2i gate i, row 2i + 1 up i; without a gate [intermediate, ..]
  Optional<Frozen<bf16>> bias;  // [outputs], or empty
  Out<bf16> y;                  // [rows, y_stride]
  In<int32_t> n_live;           // [1] rows that count; not read at bucket 1
  int64_t outputs;              // rows of weight
  int64_t y_stride;             // elements between two rows of y
  float eps;                    // added to the mean square, or to the variance

  // In a family with post norms (kPostNorm) x + norm(projected) * post_gain stands for x; else empty.
  Optional<In<float>> projected;     // [rows, stride], the first cols elements of a row count
  Optional<Frozen<bf16>> post_gain;  // [cols]
  Optional<Out<float>> x_next;       // [rows, stride] that sum, padded with zeros, for later kernels; or empty

  // In tiles whose x the kernel before has multiplied by the gain (kGained) these stand for x and gain; else empty.
  Optional<In<bf16>> gained;    // [rows, stride], stride = cols
  Optional<In<float>> squares;  // [parts, rows rounded up to 8] parts of the sums of squares of x
};

}  // namespace nodewright
