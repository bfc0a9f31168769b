// residual += the weighted sum over a row's experts of x . W^T: the second half of a mixture, of few rows.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct ExpertDownAdd {
  In<bf16> x;                // [rows, kChosen, x_stride], the first kCols elements of a row count
  Settled<int32_t> experts;  // [rows, kChosen]
  In<float> weights;         // [rows, kChosen]
  Frozen<bf16> weight;       // [kExperts * kOutputs, kStride]
  InOut<float> residual;     // [rows, residual_stride]; element (m, n) is touched by the block that owns output n
  In<int32_t> n_live;        // [1] rows that count; not read at bucket 1
  int64_t x_stride;
  int64_t residual_stride;
};

// Constants: kSingleRow, kExperts, kChosen, kParts (warps that share the columns of an expert), kOutputs (rows of W of
// an expert), kCols, kStride, kThreads, kRowsOfBlock (outputs), kScale.
inline constexpr int64_t kRowsOfGroup = 4;  // of W, that a warp has on their way

}  // namespace nodewright
