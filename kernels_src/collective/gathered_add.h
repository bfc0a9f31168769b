// The end of a block whose product is split over ranks, where a library has brought the values of all of them here:
// their sum joins the residual, or stands by itself for a norm.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

struct GatheredAdd {
  Optional<In<float>> values = {};      // [kRanks, values_stride / stride rows, stride]; empty if kBulk is 1
  Optional<In<bf16>> values_bf16 = {};  // the same; empty if kBulk is 0
  SumOut to;
  In<int32_t> n_live;  // [1] rows that count, the same on all ranks
  int64_t cols;
  int64_t values_stride;  // elements between the values of two ranks
};

// Constants: kRanks; kAdds; kBulk; kLeavesGained; kLanes: 0, or with kLeavesGained of a row in the tiles whose order of
// the squares is kept; kSplits of those tiles, otherwise 1.
inline constexpr unsigned kGatheredAddThreads = 256;
// A block for each 256 columns of a row, or of several rows.
constexpr LaunchShape gathered_add_shape(unsigned rows, unsigned cols, unsigned sm_count, bool leaves_gained) {
  const unsigned across = (cols + kGatheredAddThreads - 1) / kGatheredAddThreads;
  const unsigned most = 8 * sm_count / across, down = most == 0 ? 1 : most;
  return {{across, rows < down ? rows : down, 1},
          {kGatheredAddThreads, 1, 1},
          leaves_gained ? kGatheredAddThreads / 32 * 4 : 0};
}
// With kLanes: the outputs of each block of the tiles.
constexpr LaunchShape gathered_tiles_shape(unsigned blocks) { return {{blocks, 1, 1}, {kGatheredAddThreads, 1, 1}, 0}; }

}  // namespace nodewright
