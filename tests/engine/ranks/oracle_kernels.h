// The kernels of team_oracle.h that no network has: the values of one rank, their sum over the ranks, where one rank's
// largest logits belong, and norms over the heads of all ranks. They know no packet.
#pragma once

#include <string_view>

#include "kernels_src/args.h"
#include "runtime/kernels/inline_kernel.h"

namespace nodewright::test {

// value[m, n] = (y[m, n] + bias[n]) * kScale; with kBulk rounded to bf16. With kChosen the weighted sum of what so
// many experts of a row gave stands for y[m, n].
NODEWRIGHT_ARGS(RankValue, {
  Optional<In<float>> y = {};        // [rows, stride], or [rows, kChosen, stride]
  Optional<In<bf16>> y_bf16 = {};    // [rows, stride] the same, where y is empty: with kBulk, without kChosen
  Optional<In<float>> weights = {};  // [rows, kChosen]; empty if kChosen is 0
  Optional<Frozen<bf16>> bias = {};  // [cols]; empty if kBias is 0
  PartialOut<float> value;           // [rows, cols]
  In<int32_t> n_live;                // [1]
  int64_t cols;
  int64_t stride;
})

// residual[m, n] += sum over ranks of values, or sum[m, n] = it. With kLeavesGained also gained and squares, whose
// partial sums are those of kernels with kLanes lanes a row, or with kLanes 0 those of blocks of 256 columns.
NODEWRIGHT_ARGS(RankSum, {
  In<float> values;                      // [ranks, rows, cols]
  Optional<InOut<float>> residual = {};  // [rows, stride]; empty if kAdds is 0
  Optional<PartialOut<float>> sum = {};  // [rows, stride]; empty if kAdds is 1
  In<int32_t> n_live;                    // [1]
  int64_t rows;
  int64_t cols;
  int64_t stride;
  Optional<Frozen<bf16>> gain = {};          // [cols]
  Optional<PartialOut<bf16>> gained = {};    // [rows, cols]
  Optional<PartialOut<float>> squares = {};  // [parts, kTokens]
})

// all[m, rank, j] = best[m, j], with tokens of the whole vocabulary.
NODEWRIGHT_ARGS(RankBest, {
  In<int32_t> best;         // [rows, parts, 2] the bits of a score and its token
  PartialOut<int32_t> all;  // [rows, kRanks, parts, 2]
  int64_t rows;
  int64_t parts;
  int64_t rank;
  int64_t first;  // token of the rank's part
})

// squares[m, n]: of the strip first + n of a row, 0 all queries, 1 all keys, the sum of squares.
NODEWRIGHT_ARGS(RankSquares, {
  In<float> qkv;              // [rows, stride]
  PartialOut<float> squares;  // [rows, strips]
  In<int32_t> n_live;         // [1]
  int64_t strips;
  int64_t first;
  int64_t stride;
})

// The same strips, normed over all ranks.
NODEWRIGHT_ARGS(RankNorm, {
  InOut<float> qkv;   // [rows, stride]
  In<float> squares;  // [ranks, rows, strips]
  Frozen<bf16> q_gain;
  Frozen<bf16> k_gain;
  In<int32_t> n_live;  // [1]
  int64_t strips;
  int64_t first;
  int64_t stride;
  float eps;
})

extern const InlineKernel kRankValue, kRankSum, kRankBest, kRankSquares, kRankNorm;
inline constexpr unsigned kOracleThreads = 256;

}  // namespace nodewright::test
