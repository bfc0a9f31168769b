// The logits of a row from all ranks of a team, each of which has those of its part of the vocabulary.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/sampling/scored_token.h"

namespace nodewright {

// Takes part in one exchange of rows * most + 2 * rows * parts values.
struct GatherLogits {
  In<float> part;            // [rows, part_stride] this rank's
  PartialOut<float> logits;  // [rows, logits_stride] all
  In<int32_t> n_live;        // [1] rows that count, the same on all ranks

  // Where the head has left the largest logit of each of its blocks: of a row whose choice takes the largest those
  // alone are sent, unless all logits are kept. Else empty.
  Optional<In<ScoredToken>> best = {};              // [rows, parts] this rank's, tokens from 0
  Optional<PartialOut<ScoredToken>> all_best = {};  // [rows, kRanks * parts] by rank, tokens of the whole vocabulary
  Optional<In<float>> temperature = {};             // [rows]
  Optional<In<int32_t>> keeps_all = {};             // [1] 0: no

  int64_t vocab;  // of all ranks; rank r has those from vocab * r / kRanks on
  int64_t most;   // that a rank has
  int64_t parts;  // blocks of the head; 0 without best
  int64_t part_stride;
  int64_t logits_stride;
  int64_t rows;       // of the bucket
  Exchange exchange;  // packet m * most + n: row m, the sender's logit n; after those, 2 (m * parts + j): score, token
};

// Constants: kRanks; kBest: 1 where the head leaves the largest.
inline constexpr unsigned kGatherLogitsThreads = 256;
// All blocks run at once.
constexpr LaunchShape gather_logits_shape(uint64_t values, unsigned sm_count) {
  constexpr unsigned kBlocksOfSm = 4;
  const uint64_t wanted = (values + kGatherLogitsThreads - 1) / kGatherLogitsThreads, most = kBlocksOfSm * sm_count;
  return launch_shape_1d(static_cast<unsigned>(wanted < most ? wanted : most), kGatherLogitsThreads);
}

}  // namespace nodewright
