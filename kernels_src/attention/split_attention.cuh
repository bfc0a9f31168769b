// Attention of one row over its keys, split over blocks. kLanes lanes share a key (8 elements each), so a warp holds
// 32 / kLanes keys at once and a block kPass of them, kUnroll a lane: their scores meet in shared memory, a warp weighs
// them for each head, and every lane adds up its elements of its keys' values. At the end these sums meet in shared
// memory in slot order, and the splits of a row in the block that arrives last, in split order: a row's bits depend on
// its own tokens only. A split covers ceil(keys / kSplits) keys rounded up to whole passes; splits past the length are
// empty and not counted.
//
// Constants: those of attend.h.
#pragma once

#include "kernels_src/attention/attend.h"
#include "kernels_src/attention/kv_pages.h"
#include "kernels_src/attention/merge_splits.cuh"

namespace nodewright {

constexpr int kKeysPerWarp = static_cast<int>(32 / kLanes);
constexpr int kSlots = kKeysPerWarp * static_cast<int>(kWarps);
constexpr int kPass = kSlots * static_cast<int>(kUnroll);  // keys a block requests at once
constexpr int kWeights = kSlots > static_cast<int>(kSplits) ? kSlots : static_cast<int>(kSplits);
static_assert(kTileHeads <= static_cast<int>(kWarps), "a warp weighs a head");
static_assert(kCacheFormat == static_cast<int64_t>(CacheFormat::bf16), "it reads bf16 alone");

// A thread's 8 elements of each head of the block's tile: of q, scaled, and of the weighted values so far.
struct Elements {
  float of[kTileHeads][8];
};

// The keys of one block.
struct Split {
  int first, last;  // none when first >= last
  int splits;       // that have keys
};
NODEWRIGHT_DEVICE Split split_of(int length, int window, int split) {
  const int oldest = window > 0 && length > window ? length - window : 0;
  const int share = static_cast<int>((length - oldest + kSplits - 1) / kSplits);
  const int keys = (share + kPass - 1) / kPass * kPass;
  const int first = oldest + split * keys;
  return {first, first + keys < length ? first + keys : length, (length - oldest + keys - 1) / keys};
}

// Which of the keys in flight is this thread's, and which elements of the head.
NODEWRIGHT_DEVICE int own_slot() {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  return warp * kKeysPerWarp + lane / static_cast<int>(kLanes);
}
NODEWRIGHT_DEVICE int own_element() { return static_cast<int>(threadIdx.x % kLanes) * 8; }

// Where the keys of a row lie.
struct PagedKeys {
  const bf16* kv;
  const int* table;
  int kv_head;
};

// What a thread requests at once: keys, or values.
struct Chunk {
  uint4 of[kUnroll];
};
// Positions from `end` on are zero. `value`: 0 = keys, 1 = values.
NODEWRIGHT_DEVICE void request_chunk(Chunk& chunk, const PagedKeys& from, int value, int key0, int end) {
  const int slot = own_slot(), d0 = own_element();
  NODEWRIGHT_UNROLL
  for (int u = 0; u < kUnroll; ++u) {
    const int position = key0 + u * kSlots + slot;
    chunk.of[u] = uint4{0u, 0u, 0u, 0u};
    if (position < end && d0 < kPaddedHeadDim)
      chunk.of[u] = load_16(from.kv + kv_in_row(static_cast<int>(position % kPageSize), d0, kPaddedHeadDim) +
                            kv_offset(from.table[position / kPageSize], value, from.kv_head, position % kPageSize,
                                      kKvHeads, kPageSize, kPaddedHeadDim));
  }
}

// The block's shared memory.
struct AttendMemory {
  float* slots;    // [kTileHeads][kSlots][kHeadDim] weighted values
  float* scores;   // [2][kTileHeads][kPass] of a pass, and what its keys weigh; passes take turns
  float* keep;     // [2][kTileHeads] what the values of the passes before weigh now
  float* weights;  // [kTileHeads][kWeights]
  Merged* merged;  // [kTileHeads]
  int* ticket;
};
NODEWRIGHT_DEVICE AttendMemory attend_memory() {
  AttendMemory m;
  m.slots = reinterpret_cast<float*>(shared_memory());
  m.scores = m.slots + kTileHeads * kSlots * kPaddedHeadDim;
  m.keep = m.scores + 2 * kTileHeads * kPass;
  m.weights = m.keep + 2 * kTileHeads;
  m.merged = reinterpret_cast<Merged*>(m.weights + kTileHeads * kWeights);
  m.ticket = reinterpret_cast<int*>(m.merged + kTileHeads);
  return m;
}

// What the block's keys gave so far: warp h knows head h's maximum and sum.
struct Running {
  Merged head{-INFINITY, 0.0f};
  Elements values{};
};

// `from`: the tile's heads, kHeadDim elements each.
NODEWRIGHT_DEVICE void load_query(Elements& query, const float* from, float scale) {
  const int d0 = own_element();
  NODEWRIGHT_UNROLL
  for (int h = 0; h < kTileHeads; ++h) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i) query.of[h][i] = d0 + i < kHeadDim ? from[h * kHeadDim + d0 + i] * scale : 0.0f;
  }
}

// The split's keys, of which the first keys and values have been requested.
NODEWRIGHT_DEVICE void attend_split(const Split& split, const PagedKeys& from, Chunk& keys, Chunk& values,
                                    const Elements& query, Running& state, const AttendMemory& memory) {
  const int slot = own_slot(), warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  for (int key0 = split.first, turn = 0; key0 < split.last; key0 += kPass, ++turn) {
    float* scores = memory.scores + turn % 2 * kTileHeads * kPass;
    float* keep = memory.keep + turn % 2 * kTileHeads;
    float sums[kUnroll * kTileHeads];
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      float k[8];
      unpack_8(keys.of[u], k);
      NODEWRIGHT_UNROLL
      for (int h = 0; h < kTileHeads; ++h) {
        float& sum = sums[u * kTileHeads + h];
        sum = 0.0f;
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) sum = fmaf(query.of[h][i], k[i], sum);
      }
    }
    group_sums<static_cast<int>(kLanes)>(sums);
    if (own_element() == 0) {
      NODEWRIGHT_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        NODEWRIGHT_UNROLL
        for (int h = 0; h < kTileHeads; ++h)
          scores[h * kPass + u * kSlots + slot] =
              key0 + u * kSlots + slot < split.last ? capped_by<kScoreCap>(sums[u * kTileHeads + h]) : -INFINITY;
      }
    }
    __syncthreads();
    if (warp < kTileHeads) {
      float* of_head = scores + warp * kPass;
      float top = -INFINITY;
      for (int i = lane; i < kPass; i += 32) top = fmaxf(top, of_head[i]);
      top = fmaxf(warp_max(top), state.head.top);
      float sum = 0.0f;
      for (int i = lane; i < kPass; i += 32) {
        const float weight = exp2f(of_head[i] - top);
        of_head[i] = weight;
        sum += weight;
      }
      const float kept = exp2f(state.head.top - top);
      state.head = {top, fmaf(state.head.sum, kept, warp_sum(sum))};
      if (lane == 0) keep[warp] = kept;
    }
    __syncthreads();
    NODEWRIGHT_UNROLL
    for (int h = 0; h < kTileHeads; ++h) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i) state.values.of[h][i] *= keep[h];
    }
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      float v[8];
      unpack_8(values.of[u], v);
      NODEWRIGHT_UNROLL
      for (int h = 0; h < kTileHeads; ++h) {
        const float weight = scores[h * kPass + u * kSlots + slot];
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) state.values.of[h][i] = fmaf(weight, v[i], state.values.of[h][i]);
      }
    }
    if (key0 + kPass >= split.last) break;
    request_chunk(keys, from, 0, key0 + kPass, split.last);
    request_chunk(values, from, 1, key0 + kPass, split.last);
  }
}

// Slots -> block: returns when every slot's values are in shared memory.
NODEWRIGHT_DEVICE void gather_slots(const Running& state, const AttendMemory& memory) {
  const int warp = static_cast<int>(threadIdx.x / 32), slot = own_slot(), d0 = own_element();
  if (d0 < kPaddedHeadDim) {
    NODEWRIGHT_UNROLL
    for (int h = 0; h < kTileHeads; ++h) {
      float* to = memory.slots + (h * kSlots + slot) * kPaddedHeadDim + d0;
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; i += 4)
        store_16(to + i, uint4{float_to_bits(state.values.of[h][i]), float_to_bits(state.values.of[h][i + 1]),
                               float_to_bits(state.values.of[h][i + 2]), float_to_bits(state.values.of[h][i + 3])});
    }
  }
  if (warp < kTileHeads && threadIdx.x % 32 == 0) memory.merged[warp] = state.head;
  __syncthreads();
}
NODEWRIGHT_DEVICE float gathered(const AttendMemory& memory, int h, int d) {
  float value = 0.0f;
  NODEWRIGHT_UNROLL
  for (int s = 0; s < kSlots; ++s) value += memory.slots[(h * kSlots + s) * kPaddedHeadDim + d];
  return value;
}

}  // namespace nodewright
