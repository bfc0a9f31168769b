// Where the splits of a row meet when they are the blocks of one cluster: each sends every other its share of the
// weighted values, and every one sums its share over all of them, in split order.
//
// Constants: kHeads, kHeadDim, kHeadTile, kSplits, kWarps, kInCluster, kParts.
#pragma once

#include "kernels_src/attention/merge_splits.cuh"
#include "kernels_src/device/cluster.cuh"

namespace nodewright {

// Sections of a row, with kParts (attention/flash_attention.cuh), and whether a block has several.
constexpr int kSections = 8;
constexpr bool kHasSections = kParts > 0 && kSplits < kSections;
constexpr int kSectionsOfBlock = static_cast<int>(kHasSections ? kSections / kSplits : 1);

// What the splits send, in shared memory; before that, where a block has several sections, what its warps leave there,
// a section each time; otherwise none.
struct Received {
  static constexpr int kFrom = kHasSections ? kSections : kInCluster != 0 ? static_cast<int>(kSplits) : 0;
  static constexpr int kOfWarps = kHasSections ? (kSectionsOfBlock - static_cast<int>(kWarps)) * kElements : 0;
  static constexpr int kValues = kOfWarps + (kInCluster != 0 ? kSectionsOfBlock * kElements + kFrom : 0);

  Merged* found;  // [kFrom][kTileHeads]
  float* values;  // of sections all but each warp's last; then [splits or sections][share of the elements of a tile]
  NODEWRIGHT_DEVICE float* end() const { return values + kValues; }
};
NODEWRIGHT_DEVICE Received received_at(Merged* memory) {
  return {memory, reinterpret_cast<float*>(memory + Received::kFrom * kTileHeads)};
}

// An element of `splits` splits or sections in their order: of the head of found[0], kTileHeads apart; value(s) of
// split s.
template <class Value>
NODEWRIGHT_DEVICE float merged_value(const Merged* found, int splits, Value value_of) {
  float top = -INFINITY, sum = 0.0f, value = 0.0f;
  for (int s = 0; s < splits; ++s) top = fmaxf(top, found[s * kTileHeads].top);
  for (int s = 0; s < splits; ++s) {
    const float weight = exp2f(found[s * kTileHeads].top - top);
    sum = fmaf(found[s * kTileHeads].sum, weight, sum);
    value = fmaf(value_of(s), weight, value);
  }
  return value / sum;
}

// The row's y out of what the first `splits` blocks of the cluster found; the others have left. The arguments are
// merge_splits'. Every block has arrived at the cluster's barrier once, before it took the time to find anything.
template <class Args, class ValueOf>
NODEWRIGHT_DEVICE void merge_in_cluster(const Args& args, int row, int tile, int split, int splits,
                                        const Merged* merged, const Received& received, ValueOf value_of) {
  bf16* y = args.y.data + row * args.y_stride + tile * kTileHeads * kHeadDim;
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
    y[i] = to_bf16(merged_value(received.found + i / kHead, splits,
                                [&](int s) { return received.values[s * share + i - first]; }));
  }
}

// The same where each of the blocks has several sections of the `sections` that there are; section(s) are the values of
// one of its own.
template <class Args, class Section>
NODEWRIGHT_DEVICE void merge_sections_in_cluster(const Args& args, int row, int tile, int split, int sections,
                                                 const Received& received, Section section) {
  bf16* const y = args.y.data + row * args.y_stride + tile * kElements;
  const int blocks = (sections + kSectionsOfBlock - 1) / kSectionsOfBlock, share = (kElements + blocks - 1) / blocks,
            first = split * share, own = split * kSectionsOfBlock, last = min(own + kSectionsOfBlock, sections),
            found = (last - own) * kTileHeads;
  float* const values = received.values + Received::kOfWarps;
  cluster_wait();
  for (int s = own; s < last; ++s) {
    for (int i = static_cast<int>(threadIdx.x); i < kElements; i += kThreads)
      store_to_block(i / share, values + s * share + i % share, section(s)[i]);
  }
  for (int i = static_cast<int>(threadIdx.x); i < blocks * found; i += kThreads) {
    Merged* const from = received.found + own * kTileHeads + i % found;
    if (i / found != split) store_to_block(i / found, from, *from);
  }
  cluster_arrive();
  cluster_wait();
  for (int i = first + static_cast<int>(threadIdx.x); i < min(first + share, kElements); i += kThreads)
    y[i] = to_bf16(
        merged_value(received.found + i / kHead, sections, [&](int s) { return values[s * share + i - first]; }));
}

}  // namespace nodewright
