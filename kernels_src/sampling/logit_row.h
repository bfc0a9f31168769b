// The block that takes one row of logits.
#pragma once

namespace nodewright {

inline constexpr unsigned kLogitRowThreads = 512;
// Bins of a row's logits by their distance from the largest (sampling/weighted_bins.cuh), and shared bytes of each.
inline constexpr unsigned kLogitBins = 512, kBytesOfBin = 24;

// Blocks that share a row, as a cluster: an H100 has clusters of 16 at most, and about two blocks an SM run at once.
inline constexpr unsigned kMostBlocksOfRow = 16;
constexpr unsigned blocks_of_logit_row(unsigned rows, unsigned sm_count) {
  unsigned blocks = 1;
  while (blocks < kMostBlocksOfRow && blocks * rows <= sm_count) blocks *= 2;
  return blocks;
}

}  // namespace nodewright
