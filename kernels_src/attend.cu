// y = softmax(q k^T * scale) v over keys 0 .. position. Block (s, t, m): split s of the context, head tile t, row m.
// kLanes lanes share a key (8 elements each), so a warp holds 32 / kLanes keys at once, each with its own running
// maximum, sum and weighted values; these meet in shared memory in slot order, and the splits of a row in the block that
// arrives last, in split order: a row's bits depend on its own tokens only. A split covers ceil(length / kSplits) keys
// rounded up to 16; splits past the length leave at once and are not counted.
#include "kernels_src/attend.h"

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/kv_pages.h"

namespace nodewright {

constexpr int kTileHeads = static_cast<int>(kHeadTile);
constexpr int kKeysPerWarp = static_cast<int>(32 / kLanes);
constexpr int kSlots = kKeysPerWarp * 4;
constexpr int kPartial = static_cast<int>(kHeadDim + 2);  // weighted values, maximum, sum
constexpr int kUnroll = 4;                                // keys a lane group requests at once

struct Running {
  float top, sum, values[8];
};

// Merges `count` partials of one head, `stride` floats apart, element `d` of the values; returns value / sum.
NODEWRIGHT_DEVICE float merged_value(const float* partial, int count, int stride, int d, float top) {
  float value = 0.0f, sum = 0.0f;
  for (int i = 0; i < count; ++i) {
    const float* p = partial + i * stride;
    const float weight = exp2f(p[kHeadDim] - top);
    value = fmaf(p[d], weight, value);
    sum = fmaf(p[kHeadDim + 1], weight, sum);
  }
  return value / sum;
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(attend, Attend, kAttendThreads) {
  release_dependents();
  wait_for_inputs();
  const int split = static_cast<int>(blockIdx.x), tile = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.z);
  const int live = args.n_live.data[0], length = args.positions.data[row] + 1;
  if (row >= live) return;
  const int share = static_cast<int>((length + kSplits - 1) / kSplits);
  const int keys_per_split = (share + 15) / 16 * 16;
  const int first = split * keys_per_split;
  if (first >= length) return;
  const int last = first + keys_per_split < length ? first + keys_per_split : length;
  const int splits = (length + keys_per_split - 1) / keys_per_split;  // that have keys

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
        const int64_t at =
            kv_offset(page, 0, kv_head, position % kPageSize, kKvHeads, kPageSize, kPaddedHeadDim) + d0;
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

  // Slots -> block. A slot that saw no key has maximum -inf and weighs nothing.
  float* partials = reinterpret_cast<float*>(shared_memory());  // [kTileHeads][kSlots][kPartial]
  float* tops = partials + kTileHeads * kSlots * kPartial;      // [kTileHeads]
  int* ticket = reinterpret_cast<int*>(tops + kTileHeads);
  NODEWRIGHT_UNROLL
  for (int h = 0; h < kTileHeads; ++h) {
    float* to = partials + (h * kSlots + slot) * kPartial;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i)
      if (d0 + i < kHeadDim) to[d0 + i] = state[h].values[i];
    if (d0 == 0) to[kHeadDim] = state[h].top, to[kHeadDim + 1] = state[h].sum;
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < kTileHeads) {
    float top = -INFINITY;
    for (int i = 0; i < kSlots; ++i) top = fmaxf(top, partials[(threadIdx.x * kSlots + i) * kPartial + kHeadDim]);
    tops[threadIdx.x] = top;
  }
  __syncthreads();

  bf16* y = args.y.data + row * args.y_stride + head0 * kHeadDim;
  constexpr int kElements = kTileHeads * static_cast<int>(kHeadDim);
  if (splits == 1) {
    for (int i = static_cast<int>(threadIdx.x); i < kElements; i += static_cast<int>(kAttendThreads)) {
      const int h = i / static_cast<int>(kHeadDim), d = i % static_cast<int>(kHeadDim);
      y[i] = to_bf16(merged_value(partials + h * kSlots * kPartial, kSlots, kPartial, d, tops[h]));
    }
    return;
  }

  // Splits -> row, through global memory, by the block that arrives last.
  const int64_t cell = static_cast<int64_t>(row) * (kHeads / kHeadTile) + tile;
  float* row_partials = args.partials.data + cell * kSplits * kTileHeads * kPartial;  // [kSplits][kTileHeads][kPartial]
  float* mine = row_partials + static_cast<int64_t>(split) * kTileHeads * kPartial;
  for (int i = static_cast<int>(threadIdx.x); i < kElements; i += static_cast<int>(kAttendThreads)) {
    const int h = i / static_cast<int>(kHeadDim), d = i % static_cast<int>(kHeadDim);
    const float* from = partials + h * kSlots * kPartial;
    float value = 0.0f, sum = 0.0f;
    for (int s = 0; s < kSlots; ++s) {
      const float weight = exp2f(from[s * kPartial + kHeadDim] - tops[h]);
      value = fmaf(from[s * kPartial + d], weight, value);
      sum = fmaf(from[s * kPartial + kHeadDim + 1], weight, sum);
    }
    mine[h * kPartial + d] = value;
    if (d == 0) mine[h * kPartial + kHeadDim] = tops[h], mine[h * kPartial + kHeadDim + 1] = sum;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *ticket = atomicAdd(args.arrivals.data + cell, 1);
  __syncthreads();
  if (*ticket != splits - 1) return;
  __threadfence();
  if (static_cast<int>(threadIdx.x) < kTileHeads) {
    float top = -INFINITY;
    for (int s = 0; s < splits; ++s)
      top = fmaxf(top, load_shared_by_grid(row_partials + (s * kTileHeads + threadIdx.x) * kPartial + kHeadDim));
    tops[threadIdx.x] = top;
  }
  if (threadIdx.x == 0) args.arrivals.data[cell] = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kElements; i += static_cast<int>(kAttendThreads)) {
    const int h = i / static_cast<int>(kHeadDim), d = i % static_cast<int>(kHeadDim);
    float value = 0.0f, sum = 0.0f;
    for (int s = 0; s < splits; ++s) {
      const float* p = row_partials + (s * kTileHeads + h) * kPartial;
      const float weight = exp2f(load_shared_by_grid(p + kHeadDim) - tops[h]);
      value = fmaf(load_shared_by_grid(p + d), weight, value);
      sum = fmaf(load_shared_by_grid(p + kHeadDim + 1), weight, sum);
    }
    y[i] = to_bf16(value / sum);
  }
}
