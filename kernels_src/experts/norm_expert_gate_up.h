// y = f(h . Wgate^T) * (h . Wup^T) by each expert of a row, with h = norm(x): the first half of a mixture, of few rows.
#pragma once

#include "kernels_src/argument_blocks.h"

namespace nodewright {

struct NormExpertGateUp {
  Settled<float> x;                  // [rows, stride] residual, zero from cols on; stride: kCols rounded up to 8
  Optional<Frozen<bf16>> gain = {};  // [cols] of its norm; empty if kNorm is none
  In<int32_t> experts;               // [rows, kChosen]
  WeightIn w;                        // row 2i of an expert gate i, row 2i + 1 up i
  RowsOut<bf16> to;                  // [rows, kChosen, y_stride]
  In<int32_t> n_live;                // [1] rows that count; not read at bucket 1
  float eps;                         // added to the mean square
};

// Constants: kSingleRow, kExperts, kChosen, kOutputs (rows of W of an expert), kCols, kStride, kNorm, kActivation.
inline constexpr unsigned kExpertRowsThreads = 256;

}  // namespace nodewright
