// The logits of a row where a library has brought those of all ranks here, each of its part of the vocabulary.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/sampling/scored_token.h"

namespace nodewright {

struct GatheredLogits {
  In<float> gathered;        // [kRanks, rows, part_stride]
  PartialOut<float> logits;  // [rows, logits_stride] all
  In<int32_t> n_live;        // [1] rows that count

  // The largest logit of each block, where the heads leave it; may be empty.
  Optional<In<ScoredToken>> best = {};              // [kRanks, rows, parts] tokens from 0 in each rank's part
  Optional<PartialOut<ScoredToken>> all_best = {};  // [rows, kRanks * parts] by rank, tokens of the whole vocabulary

  int64_t vocab;  // of all ranks; rank r has those from vocab * r / kRanks on
  int64_t parts;  // blocks of the head; 0 without best
  int64_t part_stride;
  int64_t logits_stride;
  int64_t rows;  // of the bucket
};

// Constants: kRanks; kBest: 1 where the heads leave the largest.
inline constexpr unsigned kGatheredLogitsThreads = 256;
constexpr LaunchShape gathered_logits_shape(uint64_t values, unsigned sm_count) {
  constexpr unsigned kBlocksOfSm = 4;
  const uint64_t wanted = (values + kGatheredLogitsThreads - 1) / kGatheredLogitsThreads, most = kBlocksOfSm * sm_count;
  return launch_shape_1d(static_cast<unsigned>(wanted < most ? wanted : most), kGatheredLogitsThreads);
}

}  // namespace nodewright
