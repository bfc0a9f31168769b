// y[p] = f(h . Wgate^T) * (h . Wup^T), h = x[p / kChosen], for every pair p of a row and one of its experts: the first
// half of a mixture, of many rows.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/experts/group_by_expert.h"

namespace nodewright {

struct ExpertGateUp {
  In<bf16> x;           // [rows, x_stride], normed; the first kCols elements of a row count
  In<int32_t> pairs;    // [rows * kChosen] (group_by_expert.h)
  In<ExpertJob> jobs;   // [most_expert_jobs]
  In<int32_t> n_jobs;   // [1]
  Frozen<bf16> weight;  // [kExperts * kOutputs, kStride], row 2i of an expert gate i, row 2i + 1 up i
  PartialOut<bf16> y;   // [rows * kChosen, y_stride]
  int64_t x_stride;
  int64_t y_stride;
};

}  // namespace nodewright
