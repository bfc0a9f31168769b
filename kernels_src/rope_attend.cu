// Block (s, t, m): split s of the context, head tile t, row m, as in attend.cu. Every block rotates the heads of its
// tile for itself; the one whose split ends with the row's own position has the new key, and appends it to the cache.
#include "kernels_src/device/rope.cuh"
#include "kernels_src/device/split_attention.cuh"
#include "kernels_src/rope_attend.h"

NODEWRIGHT_KERNEL(rope_attend, RopeAttend, (32 * kWarps)) {
  constexpr int kGroup = static_cast<int>(kHeads / kKvHeads);
  bf16* own_key = reinterpret_cast<bf16*>(shared_memory());          // [kPaddedHeadDim]
  bf16* own_value = own_key + kPaddedHeadDim;                        // [kPaddedHeadDim]
  float* q = reinterpret_cast<float*>(own_value + kPaddedHeadDim);   // [kTileHeads][kHeadDim]
  Turn* turns = reinterpret_cast<Turn*>(q + kTileHeads * kHeadDim);  // [kHalf]
  float* scales = reinterpret_cast<float*>(turns + kHalf);           // [kTileHeads + 1]

  // While the projection runs: where the keys are, the first of them, and the angles.
  const int tile = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.z);
  const int* table = args.block_table.data + row * args.table_stride;
  // Together with the position, which may ask for another one: the page of a split that has no more than one pass.
  const int likely = static_cast<int>(blockIdx.x) * kPass / static_cast<int>(kPageSize);
  const int live = load_settled(args.n_live.data), own = load_settled(args.positions.data + row),
            likely_page = likely < args.table_stride ? load_settled(table + likely) : 0;
  const Split split = split_of(own + 1, static_cast<int>(args.window), static_cast<int>(blockIdx.x));
  const bool works = row < live && split.first < split.last;
  const int head0 = tile * kTileHeads, kv_head = head0 / kGroup;
  const PagedKeys from{args.kv.data, table, kv_head};
  const int end = min(split.last, own);  // of the keys in the cache
  Chunk keys, values;
  if (works) {
    const auto page = [&](int i) { return i == likely ? likely_page : load_settled(table + i); };
    const auto load = [](const bf16* p) { return load_settled_16(p); };
    request_chunk(keys, from, 0, split.first, end, page, load);
    request_chunk(values, from, 1, split.first, end, page, load);
    if constexpr (kRotate != 0)
      for (int i = static_cast<int>(threadIdx.x); i < kHalf; i += kThreads)
        turns[i] = turn_of(own, args.frequencies.data[i]);
  }
  wait_for_inputs();
  release_dependents();  // not before: the next kernel's weights would stand in the way of these small loads
  if (!works) return;

  // Heads: those of the tile, then the key's.
  const bool has_own = split.last == own + 1;
  const float* qkv = args.qkv.data + row * args.qkv_stride;
  const auto head_at = [&](int head) {
    return qkv + (head == kTileHeads ? kHeads + kv_head : static_cast<int64_t>(head0) + head) * kHeadDim;
  };
  const int heads = has_own ? kTileHeads + 1 : kTileHeads;
  __syncthreads();  // turns
  head_scales(scales, heads, args.eps, head_at);
  for (int i = static_cast<int>(threadIdx.x); i < heads * kHalf; i += kThreads) {
    const int head = i / kHalf, pair = i % kHalf;
    const bf16* gain = head == kTileHeads ? args.k_gain.data : args.q_gain.data;
    const float scale = kHeadNorm != 0 ? scales[head] : 1.0f;
    Pair v{normed_element(head_at(head), pair, scale, gain), normed_element(head_at(head), pair + kHalf, scale, gain)};
    if constexpr (kRotate != 0) v = turned(v, turns[pair]);
    if (head == kTileHeads) {
      own_key[pair] = to_bf16(v.first);
      own_key[pair + kHalf] = to_bf16(v.second);
    } else {
      q[head * kHeadDim + pair] = v.first;
      q[head * kHeadDim + pair + kHalf] = v.second;
    }
  }
  if (has_own) {
    const float* v = qkv + (kHeads + kKvHeads + kv_head) * kHeadDim;
    for (int i = static_cast<int>(threadIdx.x); i < kPaddedHeadDim; i += kThreads) {
      own_value[i] = to_bf16(i < kHeadDim ? v[i] : 0.0f);
      if (i >= kHeadDim) own_key[i] = to_bf16(0.0f);
    }
  }
  __syncthreads();
  if (has_own && head0 % kGroup == 0) {  // tiles of one kv head share its key
    const int page = table[own / kPageSize];
    bf16* to = args.kv.data + kv_offset(page, 0, kv_head, own % kPageSize, kKvHeads, kPageSize, kPaddedHeadDim);
    for (int i = static_cast<int>(threadIdx.x) * 8; i < kPaddedHeadDim; i += kThreads * 8) {
      store_16(to + i, load_16(own_key + i));
      store_16(to + i + kKvHeads * kPageSize * kPaddedHeadDim, load_16(own_value + i));
    }
  }

  constexpr int kOwnBytes = static_cast<int>(rope_attend_own_bytes(kTileHeads, kHeadDim, kPaddedHeadDim));
  const AttendMemory memory = attend_memory(kOwnBytes);
  Elements query;
  load_query(query, q, args.scale);
  Running state;
  attend_split(split, end, from, keys, values, query, state, memory, [&](Chunk& k, Chunk& v, int key0) {
    if (own >= key0 + kPass) return;  // the same for the whole block
    const int d0 = own_element();
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kUnroll; ++u)
      if (key0 + u * kSlots + own_slot() == own && d0 < kPaddedHeadDim) {
        k.of[u] = load_16(own_key + d0);
        v.of[u] = load_16(own_value + d0);
      }
  });
  gather_slots(state, memory);
  merge_splits(args, row, tile, static_cast<int>(blockIdx.x), split.splits, memory.weights, kWeights, memory.merged,
               memory.ticket, [&](int h, int d) { return gathered(memory, h, d); });
}
