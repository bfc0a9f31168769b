// The block that takes one row of logits.
#pragma once

namespace nodewright {

inline constexpr unsigned kLogitRowThreads = 512;
// Bins of a row's logits by their distance from the largest (sampling/weighted_bins.cuh), and shared bytes of each.
inline constexpr unsigned kLogitBins = 512, kBytesOfBin = 24;

// Blocks that share a row, a power of two up to `most`: about two blocks an SM run at once. Those of a cluster are as
// many as the device has in one, at most.
inline constexpr unsigned kMostBlocksOfRow = 16;
constexpr unsigned blocks_of_logit_row(unsigned rows, unsigned sm_count, unsigned most) {
  unsigned blocks = 1;
  while (blocks < most && blocks < kMostBlocksOfRow && blocks * rows <= sm_count) blocks *= 2;
  return blocks;
}

}  // namespace nodewright
