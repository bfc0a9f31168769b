// residual += the weighted sum of what a row's experts give.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct AddExperts {
  In<float> y;            // [rows, kChosen, stride], the first `cols` elements of a row count
  In<float> weights;      // [rows, kChosen]
  InOut<float> residual;  // [rows, stride]
  In<int32_t> n_live;     // [1]
  int64_t cols;
  int64_t stride;  // a multiple of 8
};

// Constants: kChosen, kScale.
inline constexpr unsigned kAddExpertsThreads = 128;
constexpr LaunchShape add_experts_shape(int64_t rows, int64_t cols) {
  constexpr int64_t kOfBlock = 4 * kAddExpertsThreads;
  return {{static_cast<unsigned>((cols + kOfBlock - 1) / kOfBlock), static_cast<unsigned>(rows), 1},
          {kAddExpertsThreads, 1, 1},
          0};
}

}  // namespace nodewright
