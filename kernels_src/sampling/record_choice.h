// What is remembered of a choice: the token is counted for the penalties of later ones, and told with its log
// probability and the likeliest tokens, of the distribution before anything was done to it.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/sampling/logit_row.h"
#include "kernels_src/sampling/scored_token.h"

namespace nodewright {

// Log probabilities of one choice beside the token's own.
inline constexpr int kMostLogprobs = 20;

struct RecordChoice {
  In<float> logits;                // [step rows, stride], rows 16-byte aligned
  In<float> shaped;                // [rows, stride] from which the token was chosen
  In<int32_t> rows;                // [rows] of the step
  In<int32_t> sequences;           // [rows] index into counts
  In<int32_t> forced;              // [rows] 0 or above: the token, in place of the chosen one
  In<int32_t> chosen;              // [rows] below 0: nothing is recorded
  In<int32_t> counted;             // [rows] 0: not counted
  In<int32_t> logprobs;            // [rows] of how many of the likeliest tokens; below 0: of none, nor of the token
  In<int32_t> n_live;              // [1]
  InOut<int32_t> counts;           // [sequences, stride]; a row's first block touches its sequence's
  PartialOut<int32_t> tokens;      // [rows] recorded; -1: its logits have a NaN
  PartialOut<int32_t> kept;        // [rows] 0: every token was denied, and the one chosen, too
  PartialOut<float> logprob;       // [rows] of the token
  PartialOut<int32_t> top_tokens;  // [rows, kMostLogprobs] the likeliest first, of equals the first; then -1
  PartialOut<float> top_logprobs;  // [rows, kMostLogprobs]
  int64_t vocab;
  int64_t stride;
  Optional<PartialOut<float>>
      log_sum;  // [rows] log(sum(exp(logits))) of rows that ask for log probabilities; 0 with a NaN
};

// Constant: kBlocksOfRow, a power of two. Several are a cluster and share the row.
constexpr LaunchShape record_choice_shape(unsigned rows, unsigned blocks_of_row = 1) {
  return {{blocks_of_row, rows, 1},
          {kLogitRowThreads, 1, 1},
          kLogitBins * kBytesOfBin + 32 * 8 + 32 * 8 + kMostBlocksOfRow * 8 + kMostLogprobs * 8 + 16,
          {blocks_of_row, 1, 1}};
}

}  // namespace nodewright
