// The rows of the embedding that this rank has, of a step's tokens: what it gives to all ranks, as they lie in memory.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/embed.h"

namespace nodewright {

struct OwnEmbedding {
  StepTokens in;
  Frozen<bf16> embedding;  // [of this rank, stride]
  PartialOut<bf16> own;    // [rows, stride]; rows of another rank's tokens stay as they are
  int64_t stride;          // elements of a row
  int64_t rank;
};

// Constants: kRanks.
inline constexpr unsigned kOwnEmbeddingThreads = 256;
constexpr LaunchShape own_embedding_shape(unsigned rows) { return {{rows, 1, 1}, {kOwnEmbeddingThreads, 1, 1}, 0}; }

}  // namespace nodewright
