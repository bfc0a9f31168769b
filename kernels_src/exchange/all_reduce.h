// y = the sum of x over the ranks of a team, in a node of its own; every rank gets the same bits.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// Takes part in one exchange of x.count elements. Its constant kRanks is the number of ranks.
struct AllReduce {
  In<float> x;   // [n]
  Out<float> y;  // [n]
  Exchange exchange;
};

// Threads of a block.
inline constexpr unsigned kAllReduceThreads = 256;
// For n elements: a thread each, in at most `blocks` blocks, which run at once.
constexpr LaunchShape all_reduce_shape(uint64_t n, unsigned blocks) {
  const uint64_t wanted = (n + kAllReduceThreads - 1) / kAllReduceThreads;
  return launch_shape_1d(wanted < blocks ? static_cast<unsigned>(wanted) : blocks, kAllReduceThreads);
}

}  // namespace nodewright
