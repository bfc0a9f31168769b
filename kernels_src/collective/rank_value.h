// What a rank gives to a sum over the ranks, where more than its product does: the bias, a factor, the experts of a
// row.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/exchange/exchange_add.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct RankValue {
  OwnIn own;
  Optional<PartialOut<float>> value = {};      // [rows, stride]; empty if kBulk is 1
  Optional<PartialOut<bf16>> value_bf16 = {};  // [rows, stride]; empty if kBulk is 0
  int64_t stride;                              // elements between two rows
};

// Constants: kBias; kScale: the bits of a factor, 0: none; kBulk: rounded to bf16; kChosen: experts of a row, 0: one
// value.
inline constexpr unsigned kRankValueThreads = 256;
// A block for each 256 columns of a row, or of several rows.
constexpr LaunchShape rank_value_shape(unsigned rows, unsigned cols, unsigned sm_count) {
  const unsigned across = (cols + kRankValueThreads - 1) / kRankValueThreads;
  const unsigned most = 8 * sm_count / across, down = most == 0 ? 1 : most;
  return {{across, rows < down ? rows : down, 1}, {kRankValueThreads, 1, 1}, 0};
}

}  // namespace nodewright
