// Chooses the next token of each row from its logits, and leaves it where the next step reads it.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/sampling/logit_row.h"
#include "kernels_src/sampling/scored_token.h"

namespace nodewright {

struct Sample {
  In<float> logits;  // [rows, logits_stride], rows 16-byte aligned
  Optional<In<ScoredToken>> best =
      {};                      // [rows, parts] of each part of a row, the largest; no token: it has a NaN. Or empty
  Settled<int32_t> sequences;  // [rows] index into last_token
  Settled<float> temperature;  // [rows]; below 1e-5: greedy, as every row whose largest logit is infinite
  Optional<Settled<float>> min_p = {};  // [rows] of the likeliest token's probability; 0: all. Or empty
  Settled<int32_t> top_k;               // [rows] of those; 0 = all; ties with the k-th are kept
  Settled<float> top_p;                 // [rows]; 1 = all; smallest set of the rest with at least this mass, ties kept
  In<uint64_t> seed;                    // [rows]
  In<int32_t> output_index;    // [rows] which output of its sequence this is; with the seed, the whole random state
  Settled<int32_t> n_live;     // [1]
  PartialOut<int32_t> tokens;  // [rows] the choice; -1: the row has a NaN logit
  InOut<int32_t> last_token;   // [sequences]; each row writes its own sequence's element
  Optional<PartialOut<int32_t>> delivered = {};  // [rows] pinned host memory: the choice again; or empty
  int64_t vocab;
  int64_t logits_stride;
};

inline constexpr unsigned kSampleThreads = kLogitRowThreads;

inline constexpr unsigned kSampleSavedQuads = 512;  // of a block, that may hold a kept token

// Constant: kBlocksOfRow, a power of two. Several are a cluster and share the row.
constexpr LaunchShape sample_shape(unsigned rows, unsigned blocks_of_row = 1) {
  constexpr unsigned kBinsBytes = kLogitBins * kBytesOfBin,
                     kScratchBytes = 32 * 8 + 32 * 8 + 80 + kSampleSavedQuads * 20;
  return {{blocks_of_row, rows, 1}, {kSampleThreads, 1, 1}, kBinsBytes + kScratchBytes, {blocks_of_row, 1, 1}};
}

}  // namespace nodewright
