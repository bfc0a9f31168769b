// The rows of a step by the experts that they have chosen, as jobs for tiles: an expert's matrix is read once for as
// many rows as one job has.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

// A pair is one choice of one row: number row * kChosen + j.
struct alignas(16) ExpertJob {
  int32_t expert;
  int32_t first;  // of its pairs, in `pairs`
  int32_t count;  // at most kJobRows
};

struct GroupByExpert {
  In<int32_t> experts;         // [rows, kChosen]
  In<int32_t> n_live;          // [1]
  PartialOut<int32_t> pairs;   // [rows * kChosen] those of live rows, ordered by expert, then by number
  PartialOut<ExpertJob> jobs;  // [most_expert_jobs] in the order of their experts
  PartialOut<int32_t> n_jobs;  // [1]
};

// Constants: kExperts, kChosen, kJobRows, kThreads.
inline constexpr unsigned kExpertTilesThreads = 256;  // of the kernels that multiply jobs

}  // namespace nodewright
