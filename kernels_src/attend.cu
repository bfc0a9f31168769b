// y = softmax(q k^T * scale) v over keys 0 .. position, or the last `window` of them. Block (s, t, m): split s of the
// context, head tile t, row m. kLanes lanes share a key (8 elements each), so a warp holds 32 / kLanes keys at once,
// each with its own running maximum, sum and weighted values; these meet in shared memory in slot order, and the splits
// of a row in the block that arrives last, in split order: a row's bits depend on its own tokens only. A split covers
// ceil(keys / kSplits) keys rounded up to what a block requests at once; splits past the length leave at once and are
// not counted.
#include "kernels_src/attend.h"
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/kv_pages.h"

namespace nodewright {

constexpr int kTileHeads = static_cast<int>(kHeadTile);
constexpr int kKeysPerWarp = static_cast<int>(32 / kLanes);
constexpr int kSlots = kKeysPerWarp * 4;
constexpr int kPartial = static_cast<int>(kHeadDim + 2);  // weighted values, maximum, sum
constexpr int kUnroll = 4;                                // keys a lane group requests at once
constexpr int kPass = kSlots * kUnroll;                   // keys a block requests at once
constexpr int kWeights = kSlots > static_cast<int>(kSplits) ? kSlots : static_cast<int>(kSplits);
static_assert(kTileHeads <= 4, "a warp weighs a head");

struct Running {
  float top, sum, values[8];
};

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

}  // namespace nodewright

NODEWRIGHT_KERNEL(attend, Attend, kAttendThreads) {
  release_dependents();
  wait_for_inputs();
  const int split = static_cast<int>(blockIdx.x), tile = static_cast<int>(blockIdx.y),
            row = static_cast<int>(blockIdx.z);
  const int live = args.n_live.data[0], length = args.positions.data[row] + 1;
  if (row >= live) return;
  const int oldest = args.window > 0 && length > args.window ? length - static_cast<int>(args.window) : 0;
  const int share = static_cast<int>((length - oldest + kSplits - 1) / kSplits);
  const int keys_per_split = (share + kPass - 1) / kPass * kPass;
  const int first = oldest + split * keys_per_split;
  if (first >= length) return;
  const int last = first + keys_per_split < length ? first + keys_per_split : length;
  const int splits = (length - oldest + keys_per_split - 1) / keys_per_split;  // that have keys

  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int slot = warp * kKeysPerWarp + lane / static_cast<int>(kLanes);  // which of the keys in flight
  const int d0 = lane % static_cast<int>(kLanes) * 8;                      // this lane's elements of the head
  const bool has_elements = d0 < kPaddedHeadDim;
  const int head0 = tile * kTileHeads;
  const int kv_head = static_cast<int>(head0 / (kHeads / kKvHeads));
  const int* table = args.block_table.data + row * args.table_stride;

  float q[kTileHeads][8];
  Running state[kTileHeads];
  NODEWRIGHT_UNROLL
  for (int h = 0; h < kTileHeads; ++h) {
    const float* from = args.q.data + (row * kHeads + head0 + h) * kHeadDim;
    state[h].top = -INFINITY;
    state[h].sum = 0.0f;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i) {
      q[h][i] = d0 + i < kHeadDim ? from[d0 + i] * args.scale : 0.0f;
      state[h].values[i] = 0.0f;
    }
  }

  for (int key0 = first; key0 < last; key0 += kSlots * kUnroll) {
    uint4 keys[kUnroll], values[kUnroll];
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int position = key0 + u * kSlots + slot;
      keys[u] = values[u] = uint4{0u, 0u, 0u, 0u};
      if (position < last && has_elements) {
        const int page = table[position / kPageSize];
        const int64_t at = kv_offset(page, 0, kv_head, position % kPageSize, kKvHeads, kPageSize, kPaddedHeadDim) + d0;
        keys[u] = load_16(args.kv.data + at);
        values[u] = load_16(args.kv.data + at + kKvHeads * kPageSize * kPaddedHeadDim);
      }
    }
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int position = key0 + u * kSlots + slot;
      if (key0 + u * kSlots >= last) break;  // the same for the whole block
      float k[8], v[8], scores[kTileHeads];
      unpack_8(keys[u], k);
      unpack_8(values[u], v);
      NODEWRIGHT_UNROLL
      for (int h = 0; h < kTileHeads; ++h) {
        scores[h] = 0.0f;
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) scores[h] = fmaf(q[h][i], k[i], scores[h]);
      }
      group_sums<static_cast<int>(kLanes)>(scores);
      if (position >= last) continue;
      NODEWRIGHT_UNROLL
      for (int h = 0; h < kTileHeads; ++h) {
        Running& s = state[h];
        const float top = fmaxf(s.top, scores[h]);
        const float keep = exp2f(s.top - top), add = exp2f(scores[h] - top);
        s.top = top;
        s.sum = fmaf(s.sum, keep, add);
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) s.values[i] = fmaf(add, v[i], s.values[i] * keep);
      }
    }
  }

  // Slots -> block: warp h weighs head h, then every thread sums its elements. A slot that saw no key has maximum -inf
  // and weighs nothing.
  constexpr int kElements = kTileHeads * static_cast<int>(kHeadDim), kHead = static_cast<int>(kHeadDim);
  float* slots = reinterpret_cast<float*>(shared_memory());                     // [kTileHeads][kSlots][kPartial]
  float* weights = slots + kTileHeads * kSlots * kPartial;                      // [kTileHeads][kWeights]
  Merged* merged = reinterpret_cast<Merged*>(weights + kTileHeads * kWeights);  // [kTileHeads]
  int* ticket = reinterpret_cast<int*>(merged + kTileHeads);
  NODEWRIGHT_UNROLL
  for (int h = 0; h < kTileHeads; ++h) {
    float* to = slots + (h * kSlots + slot) * kPartial;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i)
      if (d0 + i < kHeadDim) to[d0 + i] = state[h].values[i];
    if (d0 == 0) to[kHeadDim] = state[h].top, to[kHeadDim + 1] = state[h].sum;
  }
  __syncthreads();
  if (warp < kTileHeads) {
    const Merged m = merge_weights(kSlots, weights + warp * kWeights, [&](int i) {
      const float* p = slots + (warp * kSlots + i) * kPartial + kHeadDim;
      return Merged{p[0], p[1]};
    });
    if (lane == 0) merged[warp] = m;
  }
  __syncthreads();

  bf16* y = args.y.data + row * args.y_stride + head0 * kHeadDim;
  const int64_t cell = static_cast<int64_t>(row) * (kHeads / kHeadTile) + tile;
  float* row_partials = args.partials.data + cell * kSplits * kTileHeads * kPartial;  // [kSplits][kTileHeads][kPartial]
  float* mine = row_partials + static_cast<int64_t>(split) * kTileHeads * kPartial;
  for (int i = static_cast<int>(threadIdx.x); i < kElements; i += static_cast<int>(kAttendThreads)) {
    const int h = i / kHead, d = i % kHead;
    float value = 0.0f;
    NODEWRIGHT_UNROLL
    for (int s = 0; s < kSlots; ++s)
      value = fmaf(slots[(h * kSlots + s) * kPartial + d], weights[h * kWeights + s], value);
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
  if (warp < kTileHeads) {
    const Merged m = merge_weights(splits, weights + warp * kWeights, [&](int i) {
      const float* p = row_partials + (i * kTileHeads + warp) * kPartial + kHeadDim;
      return Merged{load_shared_by_grid(p), load_shared_by_grid(p + 1)};
    });
    if (lane == 0) merged[warp] = m;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kElements; i += static_cast<int>(kAttendThreads)) {
    const int h = i / kHead, d = i % kHead;
    const float* from = row_partials + h * kPartial + d;
    float value = 0.0f;
    int s = 0;
    for (; s + 8 <= splits; s += 8) {  // eight loads in flight
      float v[8];
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) v[j] = load_shared_by_grid(from + (s + j) * kTileHeads * kPartial);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) value = fmaf(v[j], weights[h * kWeights + s + j], value);
    }
    for (; s < splits; ++s)
      value = fmaf(load_shared_by_grid(from + s * kTileHeads * kPartial), weights[h * kWeights + s], value);
    y[i] = to_bf16(value / merged[h].sum);
  }
}
