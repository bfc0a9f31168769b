// The products of a mixture of many rows, whose pairs p of a row and one of its experts are grouped by expert.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/experts/group_by_expert.h"

namespace nodewright {

template <class T>
struct ExpertTiles {
  RowsIn from;
  In<int32_t> pairs;   // [rows * kChosen] (group_by_expert.h)
  In<ExpertJob> jobs;  // [most_expert_jobs]
  In<int32_t> n_jobs;  // [1]
  WeightIn w;
  RowsOut<T> to;  // [rows * kChosen, y_stride]
};

// The first half: y[p] = f(h . Wgate^T) * (h . Wup^T), h = x[p / kChosen], which is normed. Row 2i of an expert is gate
// i, row 2i + 1 up i.
using ExpertGateUp = ExpertTiles<bf16>;
// The second half: y[p] = x[p] . W^T.
using ExpertDown = ExpertTiles<float>;

}  // namespace nodewright
