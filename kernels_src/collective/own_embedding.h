// The rows of the embedding that this rank has, of a step's tokens: what it gives to all ranks, as they lie in memory.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct OwnEmbedding {
  In<int32_t> tokens;      // [rows] token id, or -1: the sequence's last token, which is already on the device
  In<int32_t> sequences;   // [rows] index into last_token
  In<int32_t> last_token;  // [sequences]
  In<int32_t> n_live;      // [1] rows that count
  Frozen<bf16> embedding;  // [of this rank, stride]
  PartialOut<bf16> own;    // [rows, stride]; rows of another rank's tokens stay as they are
  int64_t stride;          // elements of a row
  int64_t vocab;           // of all ranks; rank r has the rows from vocab * r / kRanks on
  int64_t rank;
};

// Constants: kRanks.
inline constexpr unsigned kOwnEmbeddingThreads = 256;
constexpr LaunchShape own_embedding_shape(unsigned rows) { return {{rows, 1, 1}, {kOwnEmbeddingThreads, 1, 1}, 0}; }

}  // namespace nodewright
