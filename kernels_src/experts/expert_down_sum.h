// The weighted sum over a row's experts of x . W^T, of few rows: what one rank of a team has of the second half of a
// mixture.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

// Constants: those of expert_down_add.h but kScale.
struct ExpertDownSum {
  In<bf16> x;                // [rows, kChosen, x_stride], the first kCols elements of a row count
  Settled<int32_t> experts;  // [rows, kChosen]
  In<float> weights;         // [rows, kChosen]
  Frozen<bf16> weight;       // [kExperts * kOutputs, kStride] the rank's columns
  PartialOut<float> y;       // [rows, y_stride], the first kOutputs elements of a row
  In<int32_t> n_live;        // [1] rows that count; not read at bucket 1
  int64_t x_stride;
  int64_t y_stride;
};

}  // namespace nodewright
