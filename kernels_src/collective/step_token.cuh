// Which token a row of a step has, and which rank has its row of the embedding.
#pragma once

#include "kernels_src/device/numeric.cuh"

namespace nodewright {

template <class Args>
NODEWRIGHT_DEVICE int64_t step_token(const Args& args, int64_t row) {
  int token = args.tokens.data[row];
  if (token < 0) token = args.last_token.data[args.sequences.data[row]];
  return token < 0 || token >= args.vocab ? 0 : token;  // a failed row's -1 must not be followed
}

template <class Args>
NODEWRIGHT_DEVICE int64_t first_token(const Args& args, int64_t rank) {
  return args.vocab * rank / kRanks;
}

}  // namespace nodewright
