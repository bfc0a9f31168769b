// Where the parts of a row's attention meet: the maxima, sums and weighted values of slots or warps in a block, and
// those of its splits in global memory, in split order, in the block that arrives last.
//
// Constants: kHeads, kHeadDim, kHeadTile, kSplits, kWarps.
#pragma once

#include "kernels_src/device/numeric.cuh"

namespace nodewright {

constexpr int kTileHeads = static_cast<int>(kHeadTile);
constexpr int kPartial = static_cast<int>(kHeadDim + 2);  // weighted values, maximum, sum
constexpr int kThreads = static_cast<int>(32 * kWarps), kHead = static_cast<int>(kHeadDim);
constexpr int kElements = kTileHeads * kHead, kOwn = (kElements + kThreads - 1) / kThreads;  // of a thread

// What `count` partials of one head weigh beside each other. Called by a whole warp: load(i) gives the maximum and the
// sum of partial i, weights[i] becomes exp2(maximum i - largest maximum). Every lane returns the largest maximum and
// the weighted sum.
struct Merged {
  float top, sum;
};
template <class Load>
NODEWRIGHT_DEVICE Merged merge_weights(int count, float* weights, Load load) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float top = -INFINITY;
  for (int i = lane; i < count; i += 32) top = fmaxf(top, load(i).top);
  top = warp_max(top);
  float sum = 0.0f;
  for (int i = lane; i < count; i += 32) {
    const Merged m = load(i);
    const float weight = exp2f(m.top - top);
    weights[i] = weight;
    sum = fmaf(m.sum, weight, sum);
  }
  return {top, warp_sum(sum)};
}

// What the blocks of all splits found, into the row's y: merged[h] has the maximum and the sum of this block, and
// value_of(h, d) gives its weighted values. `weights`: room for those of all splits of each head. `args` has y,
// y_stride, partials and arrivals.
template <class Args, class ValueOf>
NODEWRIGHT_DEVICE void merge_splits(const Args& args, int row, int tile, int split, int splits, float* weights,
                                    int weights_stride, Merged* merged, int* ticket, ValueOf value_of) {
  if constexpr (kSplits == 1) splits = 1;  // no code for what never meets
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  bf16* y = args.y.data + row * args.y_stride + tile * kTileHeads * kHeadDim;
  const int64_t cell = static_cast<int64_t>(row) * (kHeads / kHeadTile) + tile;
  float* row_partials = args.partials.data + cell * kSplits * kTileHeads * kPartial;  // [kSplits][kTileHeads][kPartial]
  float* mine = row_partials + static_cast<int64_t>(split) * kTileHeads * kPartial;
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kOwn; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads, h = i / kHead, d = i % kHead;
    if (i >= kElements) break;
    const float value = value_of(h, d);
    if (splits == 1) {
      y[i] = to_bf16(value / merged[h].sum);
    } else {
      mine[h * kPartial + d] = value;
      if (d == 0) mine[h * kPartial + kHeadDim] = merged[h].top, mine[h * kPartial + kHeadDim + 1] = merged[h].sum;
    }
  }
  if (splits == 1) return;

  // Splits -> row, through global memory, by the block that arrives last.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *ticket = atomicAdd(args.arrivals.data + cell, 1);
  __syncthreads();
  if (*ticket != splits - 1) return;
  __threadfence();
  if (threadIdx.x == 0) args.arrivals.data[cell] = 0;
  // Values of the first splits are requested together with what they weigh.
  constexpr int kAtOnce = kOwn <= 2 ? 16 : 32 / kOwn;
  const auto element = [&](int i, int s) {
    return load_shared_by_grid(row_partials + (s * kTileHeads + i / kHead) * kPartial + i % kHead);
  };
  float values[kOwn][kAtOnce];
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kOwn; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads;
    NODEWRIGHT_UNROLL
    for (int s = 0; s < kAtOnce; ++s) values[e][s] = i < kElements && s < splits ? element(i, s) : 0.0f;
  }
  for (int h = warp; h < kTileHeads; h += static_cast<int>(kWarps)) {
    const Merged m = merge_weights(splits, weights + h * weights_stride, [&](int i) {
      const float* p = row_partials + (i * kTileHeads + h) * kPartial + kHeadDim;
      return Merged{load_shared_by_grid(p), load_shared_by_grid(p + 1)};
    });
    if (lane == 0) merged[h] = m;
  }
  __syncthreads();
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kOwn; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads, h = i / kHead;
    if (i >= kElements) break;
    float value = 0.0f;
    NODEWRIGHT_UNROLL
    for (int s = 0; s < kAtOnce; ++s)
      if (s < splits) value = fmaf(values[e][s], weights[h * weights_stride + s], value);
    int s = kAtOnce;
    for (; s + 8 <= splits; s += 8) {  // eight loads in flight
      float v[8];
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) v[j] = element(i, s + j);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) value = fmaf(v[j], weights[h * weights_stride + s + j], value);
    }
    for (; s < splits; ++s) value = fmaf(element(i, s), weights[h * weights_stride + s], value);
    y[i] = to_bf16(value / merged[h].sum);
  }
}

}  // namespace nodewright
