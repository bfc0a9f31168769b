// The same for blocks of many passes: every slot has a running maximum, sum and weighted values of its own, and the
// warps of a block wait for one another only at the end.
#pragma once

#include "kernels_src/device/split_attention.cuh"

namespace nodewright {

struct LaneRunning {
  float top, sum, values[8];
};

NODEWRIGHT_DEVICE void attend_by_lane(const Split& split, const PagedKeys& from, const Elements& query,
                                      LaneRunning (&state)[kTileHeads]) {
  NODEWRIGHT_UNROLL
  for (int h = 0; h < kTileHeads; ++h) state[h] = {-INFINITY, 0.0f, {}};
  for (int key0 = split.first; key0 < split.last; key0 += kPass) {
    Chunk keys, values;
    request_chunk(keys, from, 0, key0, split.last);
    request_chunk(values, from, 1, key0, split.last);
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int position = key0 + u * kSlots + own_slot();
      if (key0 + u * kSlots >= split.last) break;  // the same for the whole block
      float k[8], v[8], scores[kTileHeads];
      unpack_8(keys.of[u], k);
      unpack_8(values.of[u], v);
      NODEWRIGHT_UNROLL
      for (int h = 0; h < kTileHeads; ++h) {
        scores[h] = 0.0f;
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) scores[h] = fmaf(query.of[h][i], k[i], scores[h]);
      }
      group_sums<static_cast<int>(kLanes)>(scores);
      if (position >= split.last) continue;
      NODEWRIGHT_UNROLL
      for (int h = 0; h < kTileHeads; ++h) {
        LaneRunning& s = state[h];
        const float top = fmaxf(s.top, scores[h]);
        const float keep = exp2f(s.top - top), add = exp2f(scores[h] - top);
        s.top = top;
        s.sum = fmaf(s.sum, keep, add);
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) s.values[i] = fmaf(add, v[i], s.values[i] * keep);
      }
    }
  }
}

// Slots -> block: warp h weighs head h. A slot that saw no key has maximum -inf and weighs nothing.
struct LaneMemory {
  float* slots;    // [kTileHeads][kSlots][kPartial]
  float* weights;  // [kTileHeads][kWeights]
  Merged* merged;  // [kTileHeads]
  int* ticket;
};
NODEWRIGHT_DEVICE LaneMemory gather_lanes(const LaneRunning (&state)[kTileHeads]) {
  LaneMemory m;
  m.slots = reinterpret_cast<float*>(shared_memory());
  m.weights = m.slots + kTileHeads * kSlots * kPartial;
  m.merged = reinterpret_cast<Merged*>(m.weights + kTileHeads * kWeights);
  m.ticket = reinterpret_cast<int*>(m.merged + kTileHeads);
  const int warp = static_cast<int>(threadIdx.x / 32), d0 = own_element();
  NODEWRIGHT_UNROLL
  for (int h = 0; h < kTileHeads; ++h) {
    float* to = m.slots + (h * kSlots + own_slot()) * kPartial;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i)
      if (d0 + i < kHeadDim) to[d0 + i] = state[h].values[i];
    if (d0 == 0) to[kHeadDim] = state[h].top, to[kHeadDim + 1] = state[h].sum;
  }
  __syncthreads();
  if (warp < kTileHeads) {
    const Merged merged = merge_weights(kSlots, m.weights + warp * kWeights, [&](int i) {
      const float* p = m.slots + (warp * kSlots + i) * kPartial + kHeadDim;
      return Merged{p[0], p[1]};
    });
    if (threadIdx.x % 32 == 0) m.merged[warp] = merged;
  }
  __syncthreads();
  return m;
}
NODEWRIGHT_DEVICE float gathered(const LaneMemory& memory, int h, int d) {
  float value = 0.0f;
  NODEWRIGHT_UNROLL
  for (int s = 0; s < kSlots; ++s)
    value = fmaf(memory.slots[(h * kSlots + s) * kPartial + d], memory.weights[h * kWeights + s], value);
  return value;
}

}  // namespace nodewright
