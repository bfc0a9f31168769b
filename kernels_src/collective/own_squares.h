// What a rank gives to a norm of queries and keys over the heads of all ranks: its sum of squares of each.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct OwnSquares {
  In<float> qkv;              // [rows, stride]: this rank's heads q, then kv_heads k, head_dim each, and more
  PartialOut<float> squares;  // [rows, 2] of queries, of keys
  In<int32_t> n_live;         // [1] rows that count
  int64_t stride;
};

// Constants: kHeads, kKvHeads, kHeadDim; kNorm, as GatheredNormHeads has it.
inline constexpr unsigned kOwnSquaresThreads = 256;
// A block for the queries of a row and one for its keys.
constexpr LaunchShape own_squares_shape(unsigned rows) {
  return {{rows, 2, 1}, {kOwnSquaresThreads, 1, 1}, kOwnSquaresThreads / 32 * 4};
}

}  // namespace nodewright
