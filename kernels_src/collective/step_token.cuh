// Which token a row of a step has, and which rank has its row of the embedding.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/embed.h"

namespace nodewright {

NODEWRIGHT_DEVICE int64_t step_token(const StepTokens& in, int64_t row) {
  int token = in.tokens.data[row];
  if (token < 0) token = in.last_token.data[in.sequences.data[row]];
  return token < 0 || token >= in.vocab ? 0 : token;  // a failed row's -1 must not be followed
}

NODEWRIGHT_DEVICE int64_t first_token(const StepTokens& in, int64_t rank) { return in.vocab * rank / kRanks; }

}  // namespace nodewright
