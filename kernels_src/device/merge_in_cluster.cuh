// Where the splits of a row meet when they are the blocks of one cluster: each sends every other its share of the
// weighted values, and every one sums its share over all of them, in split order. A long context is read by several
// clusters, its parts, which then meet in global memory (merge_splits.cuh).
//
// Constants: kHeads, kHeadDim, kHeadTile, kSplits, kParts, kWarps, kInCluster.
#pragma once

#include "kernels_src/device/cluster.cuh"
#include "kernels_src/device/merge_splits.cuh"

namespace nodewright {

// What the splits send, in shared memory; none without a cluster.
struct Received {
  static constexpr int kFrom = kInCluster != 0 ? static_cast<int>(kSplits) : 0;

  Merged* found;  // [kSplits][kTileHeads]
  float* values;  // [splits][share of the elements of a tile]
  NODEWRIGHT_DEVICE float* end() const { return values + (kFrom > 0 ? kElements + kFrom : 0); }
};
NODEWRIGHT_DEVICE Received received_at(Merged* memory) {
  return {memory, reinterpret_cast<float*>(memory + Received::kFrom * kTileHeads)};
}

// The row's y out of what the first `blocks` blocks of all clusters found, this one as the `block`-th; the others have
// left. The arguments are merge_splits'. Every block has arrived at the cluster's barrier once, before it took the time
// to find anything.
template <class Args, class ValueOf>
NODEWRIGHT_DEVICE void merge_in_cluster(const Args& args, int row, int tile, int block, int blocks, float* weights,
                                        int weights_stride, Merged* merged, const Received& received, int* ticket,
                                        ValueOf value_of) {
  constexpr int kBlocks = static_cast<int>(kSplits);  // of a cluster
  bf16* y = args.y.data + row * args.y_stride + tile * kTileHeads * kHeadDim;
  const int part = block / kBlocks, split = block % kBlocks, splits = min(blocks - part * kBlocks, kBlocks),
            parts = (blocks + kBlocks - 1) / kBlocks;
  const int64_t cell = static_cast<int64_t>(row) * (kHeads / kHeadTile) + tile;
  float* partials = args.partials.data + cell * kParts * kTileHeads * kPartial;
  float* mine = partials + part * kTileHeads * kPartial;
  const int share = (kElements + splits - 1) / splits, first = split * share;
  cluster_wait();
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kOwn; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads, to = i / share;
    if (i >= kElements) break;
    store_to_block(to, received.values + first + i - to * share, value_of(i / kHead, i % kHead));
  }
  for (int i = static_cast<int>(threadIdx.x); i < splits * kTileHeads; i += kThreads)
    store_to_block(i / kTileHeads, received.found + split * kTileHeads + i % kTileHeads, merged[i % kTileHeads]);
  cluster_arrive();
  cluster_wait();
  for (int i = first + static_cast<int>(threadIdx.x); i < min(first + share, kElements); i += kThreads) {
    const Merged* found = received.found + i / kHead;
    float top = -INFINITY, sum = 0.0f, value = 0.0f;
    for (int s = 0; s < splits; ++s) top = fmaxf(top, found[s * kTileHeads].top);
    for (int s = 0; s < splits; ++s) {
      const float weight = exp2f(found[s * kTileHeads].top - top);
      sum = fmaf(found[s * kTileHeads].sum, weight, sum);
      value = fmaf(received.values[s * share + i - first], weight, value);
    }
    if (kParts == 1 || parts == 1) {
      y[i] = to_bf16(value / sum);
    } else {
      const int h = i / kHead, d = i % kHead;
      mine[h * kPartial + d] = value;
      if (d == 0) mine[h * kPartial + kHeadDim] = top, mine[h * kPartial + kHeadDim + 1] = sum;
    }
  }
  if constexpr (kParts > 1)
    if (parts > 1 && arrives_last(args, cell, blocks, ticket))
      merge_partials(y, partials, parts, weights, weights_stride, merged);
}

}  // namespace nodewright
