// What a request asks for beyond temperature, min-p, top-k and top-p, done to a copy of its row of logits: the mask of
// a constrained row, biases and forbidden tokens, penalties. `sample` then chooses from the copy.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/sampling/logit_row.h"
#include "kernels_src/sampling/scored_token.h"

namespace nodewright {

// Biases and forbidden tokens of a row, at most.
inline constexpr int kMostBiases = 256;
// In the counts of a sequence: the token stands in its prompt. Below it: how often it was chosen.
inline constexpr int kInPrompt = 1 << 30;

struct ShapeLogits {
  In<float> logits;              // [step rows, stride], rows 16-byte aligned
  In<int32_t> rows;              // [rows] of the step
  In<int32_t> sequences;         // [rows] index into counts
  In<int32_t> forced;            // [rows] 0 or above: the token is given, and nothing is done for the row
  In<int32_t> constrained;       // [rows] 0: the mask is not looked at
  In<uint32_t> masks;            // [rows, mask_words] bit i % 32 of word i / 32: token i is allowed; perhaps the host's
  In<int32_t> biases;            // [rows] how many
  In<int32_t> bias_tokens;       // [rows, kMostBiases] all different; perhaps the host's
  In<float> bias_values;         // [rows, kMostBiases] added to the logit; -infinity: forbidden; perhaps the host's
  In<float> repetition_penalty;  // [rows] of tokens in the prompt or chosen; 1: none
  In<float> presence_penalty;    // [rows] of tokens chosen; 0: none
  In<float> frequency_penalty;   // [rows] for each time it was chosen; 0: none
  In<int32_t> counts;            // [sequences, stride], rows 16-byte aligned
  In<int32_t> n_live;            // [1]
  InOut<float> shaped;           // [rows, stride]
  PartialOut<ScoredToken> best;  // [rows, parts] of each part of a row, the largest; no token: it has a NaN
  int64_t vocab;
  int64_t stride;
  int64_t mask_words;  // vocab / 32, rounded up
};

// `parts`: blocks of a row.
constexpr LaunchShape shape_logits_shape(unsigned rows, unsigned parts) {
  return {{parts, rows, 1}, {kLogitRowThreads, 1, 1}, 32 * sizeof(ScoredToken)};
}

}  // namespace nodewright
