// The experts of each row of a mixture, and how much each counts: the largest of the router's logits.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct ChooseExperts {
  In<float> logits;             // [rows, kExperts] of the router
  PartialOut<int32_t> experts;  // [rows, kChosen] the largest logit first, of equal ones the lower expert
  PartialOut<float> weights;    // [rows, kChosen] their parts of the softmax over all, or over the chosen
  In<int32_t> n_live;           // [1]
};

// Constants: kExperts, kChosen; kNormalised: 1 where a row's weights sum to one.
inline constexpr unsigned kChooseExpertsThreads = 128;
constexpr LaunchShape choose_experts_shape(int64_t rows) {
  constexpr int64_t kRowsOfBlock = kChooseExpertsThreads / 32;
  return launch_shape_1d(static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock), kChooseExpertsThreads);
}

}  // namespace nodewright
