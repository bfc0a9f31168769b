// The second half of a mixture, of few rows: the weighted sum over a row's experts of x . W^T.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

template <class To>
struct ExpertDownRows {
  RowsIn from;               // [rows, kChosen, x_stride]
  Settled<int32_t> experts;  // [rows, kChosen]
  In<float> weights;         // [rows, kChosen]
  WeightIn w;
  To to;
  In<int32_t> n_live;  // [1] rows that count; not read at bucket 1
};

// Constants: kSingleRow, kExperts, kChosen, kParts (warps that share the columns of an expert), kOutputs (rows of W of
// an expert), kCols, kStride, kThreads, kRowsOfBlock (outputs); of expert_down_add kScale.
inline constexpr int64_t kRowsOfGroup = 4;  // of W, that a warp has on their way

using ExpertDownAdd = ExpertDownRows<AddTo>;
// What one rank of a team has: its columns of W.
using ExpertDownSum = ExpertDownRows<RowsOut<float>>;

}  // namespace nodewright
