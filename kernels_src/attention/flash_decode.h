// Attend on tensor cores, with RopeAppend or without: the query heads of a key head are the rows of one small matrix,
// so that each key and value is read once for all of them.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/attention/attend.h"
#include "kernels_src/attention/rope_flash_decode.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// How the heads and the context of a row are dealt to blocks. The arguments are Attend's, with this head tile.
struct FlashDecodeShape {
  static constexpr int64_t kMatrixRows = 16;  // of queries
  static constexpr int64_t kMostHeadTile = 8, kMostHeadDim = 256;
  static constexpr int64_t kMostRing = 4, kMostRingBytes = 148 * 1024;
  // Where the order of sums follows from a row's length alone: its parts, and sections of them that meet as splits do
  // (attention/flash_attention.cuh). A section's parts are the warps of a block, where splits are sections.
  static constexpr int64_t kParts = 32, kSections = 8, kPartsOfSection = kParts / kSections;

  int64_t rows = 1, heads = 1, kv_heads = 1, head_dim = 64;
  int64_t splits = 1;  // upper bound on blocks over one row's context
  int64_t warps = 4;
  int64_t requested = 0;  // chunks that a warp has requested; 0: what shared memory holds
  // The most that the device takes; 1: it has no clusters. Up to as many splits of a row meet in shared memory.
  int64_t cluster_blocks = 1;
  bool ordered = false;  // one order of sums for any rows and warps and the same ring; splits divide kSections
  CacheFormat cache = CacheFormat::bf16;
  int64_t least_bytes = 0;  // of shared memory that a block takes: blocks would gather on the SMs that are free first

  static constexpr bool takes(int64_t head_dim) { return head_dim % 2 == 0 && head_dim <= kMostHeadDim; }
  constexpr int64_t padded_head_dim() const { return nodewright::padded_head_dim(head_dim, cache); }
  constexpr int64_t tile_dim() const { return (head_dim + 15) / 16 * 16; }
  // Keys of a chunk, which a warp requests at once: one or two tiles of the matrix unit, as many bytes in both formats.
  constexpr int64_t chunk() const { return 32 / element_bytes(cache); }
  // Query heads of a block, all of one key head: the largest divisor of the group that half a tile holds.
  constexpr int64_t head_tile() const {
    const int64_t group = heads / kv_heads;
    int64_t tile = group < kMostHeadTile ? group : kMostHeadTile;
    while (group % tile != 0) --tile;
    return tile;
  }
  constexpr int64_t head_tiles() const { return heads / head_tile(); }
  constexpr bool has_clusters() const { return cluster_blocks > 1; }
  constexpr bool in_cluster() const { return splits > 1 && splits <= cluster_blocks; }
  // Keys and values of a chunk, as they lie in the cache, or, where its rows are shorter than a tile's, in rows of
  // which eight lie in different banks. At the end, the weighted values of a warp take the place of one or more.
  constexpr int64_t stage_bytes() const {
    return 2 * 16 * (tile_dim() == padded_head_dim() ? tile_dim() : tile_dim() + 8) * 2;
  }
  // Three blocks fill an SM's shared memory, or two where a warp would have fewer than three chunks. At one or two rows
  // the kernels around hold little themselves (docs/attention.md).
  constexpr int64_t ring_bytes() const {
    if (has_clusters() && rows <= 2 && !ordered) return kMostRingBytes;
    const int64_t third = 72 * 1024, half = 108 * 1024;
    return 3 * warps * stage_bytes() <= third ? third : half;
  }
  constexpr int64_t ring() const {
    if (requested > 0) return requested;
    const int64_t fit = ring_bytes() / (warps * stage_bytes());
    const int64_t least = 2 * warps * stage_bytes() > kMostRingBytes ? 1 : 2;
    return fit < least ? least : fit < kMostRing ? fit : kMostRing;
  }
  // Takes least_bytes such that blocks that can all run at once, one or two an SM, do not stand closer: half an SM's
  // shared memory, or a third, with the 1 KiB of each block that is reserved. A block alone may have `most_bytes`.
  constexpr void spread(int64_t sm_count, int64_t most_bytes) {
    const int64_t blocks = rows * head_tiles() * splits, of_sm = most_bytes + 1024;
    if (has_clusters())
      least_bytes = warps > 4 || (ordered && blocks <= sm_count)  ? of_sm / 2
                    : blocks > sm_count && blocks <= 2 * sm_count ? of_sm / 3
                                                                  : 0;
  }
  // FlashMemory (attention/flash_attention.cuh).
  constexpr unsigned shared_bytes() const {
    const int64_t weights = splits > warps ? splits : warps;
    const int64_t sections = kSections / splits,  // of a block, where it has several
        sent = in_cluster() ? head_tile() * sections * head_dim + kSections : 0;
    const int64_t received = ordered && splits < kSections
                                 ? head_tile() * ((sections - warps) * head_dim + 2 * kSections) + sent
                             : in_cluster() ? head_tile() * (head_dim + 2 * splits) + splits
                                            : 0;
    const int64_t queries = kMatrixRows * (tile_dim() + 8) * 2, barriers = 8 * warps * 2 * ring();
    const int64_t needed = warps * ring() * stage_bytes() + queries + barriers +
                           4 * (head_tile() * (2 * warps + weights + 2) + received + 4);
    return static_cast<unsigned>(needed < least_bytes ? least_bytes : needed);
  }
  constexpr ShapeConstants<6> constants() const {
    return {{{"kHeadTile", head_tile()},
             {"kSplits", splits},
             {"kWarps", warps},
             {"kRing", ring()},
             {"kInCluster", in_cluster()},
             {"kParts", ordered ? kParts : 0}}};
  }
  constexpr LaunchShape launch_shape() const {
    const auto blocks = static_cast<unsigned>(splits);
    return {{blocks, static_cast<unsigned>(head_tiles()), static_cast<unsigned>(rows)},
            {static_cast<unsigned>(32 * warps), 1, 1},
            shared_bytes(),
            {in_cluster() ? blocks : 1, 1, 1}};
  }
  // The launch shape of rope_flash_decode.
  constexpr LaunchShape rope_launch_shape() const {
    LaunchShape shape = launch_shape();
    shape.shared_bytes += rope_tile_bytes(head_tile(), head_dim, padded_head_dim());
    return shape;
  }
};

// Constants: kHeads, kKvHeads, kHeadDim, kPaddedHeadDim, kCacheFormat, kPageSize and the shape's; of rope_flash_decode
// also kRotate, kHeadNorm and kNorm, as RopeAppend's.

}  // namespace nodewright
