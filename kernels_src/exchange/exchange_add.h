// The end of a block whose product is split over the ranks of a team: the sum of what all have joins the residual, or
// stands by itself for a norm.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Takes part in one exchange of rows * cols values, or with kPairs of half as many: each packet then carries what two
// columns have, rounded to bf16.
struct ExchangeAdd {
  Optional<In<float>> y;            // [rows, stride] what this rank has; or [rows, kChosen, stride] its experts
  Optional<In<bf16>> pairs;         // [rows, stride] the same, where y is empty: with kPairs, without kChosen
  Optional<In<float>> weights;      // [rows, kChosen] of the experts; empty if kChosen is 0
  Optional<Frozen<bf16>> bias;      // [cols] of this rank; empty if kBias is 0
  Optional<InOut<float>> residual;  // [rows, stride] the same on all ranks; empty if kAdds is 0
  Optional<Out<float>> sum;         // [rows, stride]; empty if kAdds is 1
  In<int32_t> n_live;               // [1] rows that count, the same on all ranks
  int64_t cols;
  int64_t stride;     // elements between two rows
  ResidualOut next;   // a part for each block of columns
  Exchange exchange;  // packet m * cols + n: row m, column n; of pairs m * cols / 2 + n: columns 2 n and 2 n + 1
};

// Constants: kRanks; kAdds; kBias; kScale: the bits of a factor of what each rank has, 0: none; kLeavesGained; kPairs,
// of an even number of columns and without kLeavesGained; kChosen: of a mixture whose rows' experts gave a value each,
// how many, 0: one value.
inline constexpr unsigned kExchangeAddThreads = 256;
// A block for each 256 packets of a row, or of several rows, so that all run at once. `of_experts`: kChosen is not 0.
constexpr LaunchShape exchange_add_shape(unsigned rows, unsigned packets, unsigned ranks, unsigned sm_count,
                                         bool leaves_gained, bool of_experts) {
  // What is seen of many ranks takes registers, and so do the values of several experts.
  const unsigned blocks_of_sm = ranks > 2 || of_experts ? 2 : 4;
  const unsigned across = (packets + kExchangeAddThreads - 1) / kExchangeAddThreads;
  const unsigned most = blocks_of_sm * sm_count / across, down = most == 0 ? 1 : most;
  return {{across, rows < down ? rows : down, 1},
          {kExchangeAddThreads, 1, 1},
          leaves_gained ? kExchangeAddThreads / 32 * 4 : 0};
}

}  // namespace nodewright
