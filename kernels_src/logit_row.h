// The block that takes one row of logits.
#pragma once

namespace nodewright {

inline constexpr unsigned kLogitRowThreads = 512;
// Of a row's logits, by how far they lie below the largest (device/weighted_bins.cuh), and shared memory of each.
inline constexpr unsigned kLogitBins = 512, kBytesOfBin = 24;

// Blocks that share a row: as a cluster, of which an H100 has 16 at most, and two blocks an SM. One block takes 40 us
// for a row of 128 k logits, 16 blocks 5.
inline constexpr unsigned kMostBlocksOfRow = 16;
constexpr unsigned blocks_of_logit_row(unsigned rows, unsigned sm_count) {
  unsigned blocks = 1;
  while (blocks < kMostBlocksOfRow && blocks * rows <= sm_count) blocks *= 2;
  return blocks;
}

}  // namespace nodewright
