// y[p] = x[p] . W^T for every pair p of a row and one of its experts: the second half of a mixture, of many rows.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/experts/group_by_expert.h"

namespace nodewright {

struct ExpertDown {
  In<bf16> x;           // [rows * kChosen, x_stride], the first kCols elements of a row count
  In<int32_t> pairs;    // [rows * kChosen]
  In<ExpertJob> jobs;   // [most_expert_jobs]
  In<int32_t> n_jobs;   // [1]
  Frozen<bf16> weight;  // [kExperts * kOutputs, kStride]
  PartialOut<float> y;  // [rows * kChosen, y_stride]
  int64_t x_stride;
  int64_t y_stride;
};

}  // namespace nodewright
