// y = softmax(q k^T * scale) v over keys 0 .. position, or the last `window` of them, with q, k, v and the
// probabilities in bf16, sums in fp32. Block (h, t): query head h, the t-th last tile of kTileRows rows from n_first
// on; each warp that multiplies has 16 of them. The block walks over the runs of rows of one sequence in its tile, and
// for each over the pages that the run attends to. A page that a row does not attend to changes none of its bits, so a
// row's bits depend on its own tokens only, wherever it lies in a tile.
//
// Constants: kHeads, kKvHeads, kHeadDim, kPaddedHeadDim, kPageSize, kScoreCap, and those of AttendTilesShape.
#include "kernels_src/attention/attend_tiles.h"
#include "kernels_src/attention/tiles_by_warpgroups.cuh"
#include "kernels_src/attention/tiles_by_warps.cuh"

namespace nodewright {
constexpr unsigned kBlocksOfAnSm = kWarpgroups == 0 && kDim <= 128 ? 3 : 1;  // 168, or all, registers a thread
}  // namespace nodewright

NODEWRIGHT_KERNEL_OF(attend_tiles, AttendTiles, kThreads, kBlocksOfAnSm) {
  release_dependents();
  wait_for_inputs();
  const int head = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(head / (kHeads / kKvHeads));
  const int tile = static_cast<int>(gridDim.y - 1 - blockIdx.y);  // those that have the most to do begin first
  const int live = args.n_live.data[0], first = args.n_first.data[0] + tile * kTileRows;
  if (first >= live) return;
  const int end = first + kTileRows < live ? first + kTileRows : live;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (kWarpgroups > 0) return attend_by_warpgroups(args, first, end, head, kv_head);
#endif
  attend_by_warps(args, first, end, head, kv_head);
}
