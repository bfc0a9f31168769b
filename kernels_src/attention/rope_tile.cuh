// What a block that attends does with a row's projections first: it rotates the query heads of its tile, and the row's
// own key where its keys include it.
// Constants: those of rope.cuh and kHeads, kKvHeads, kPaddedHeadDim, kCacheFormat, kHeadTile.
#pragma once

#include "kernels_src/attention/cache_format.cuh"
#include "kernels_src/attention/merge_splits.cuh"
#include "kernels_src/attention/rope.cuh"

namespace nodewright {

constexpr int kGroup = static_cast<int>(kHeads / kKvHeads);
constexpr int kTurnsEach = ((kTileHeads + 1) * kHalf + kThreads - 1) / kThreads;  // of a thread
constexpr int kAnglesEach = (kHalf + kThreads - 1) / kThreads;
static_assert(kPaddedHeadDim <= kPiece * 32);
static_assert(!kWidthNorm || 2 * kThreads / 32 <= kPaddedHeadDim, "sums of warps lie where the own key will");
constexpr int kValuesEach = static_cast<int>((kPaddedHeadDim + kThreads - 1) / kThreads);

// In shared memory, before what attention needs (rope_tile_bytes).
struct RopeTile {
  KvElement *own_key, *own_value;  // [kPaddedHeadDim]
  Turn* turns;                     // [kHalf] of the row's own position
  float* scales;                   // [kTileHeads + 1]
};
NODEWRIGHT_DEVICE RopeTile rope_tile() {
  RopeTile m;
  m.own_key = reinterpret_cast<KvElement*>(shared_memory());
  m.own_value = m.own_key + kPaddedHeadDim;
  m.turns = reinterpret_cast<Turn*>(shared_memory() + 2 * kPaddedHeadDim * sizeof(bf16));
  m.scales = reinterpret_cast<float*>(m.turns + kHalf);
  return m;
}

// This thread's frequencies, before anything else is there; then their turns, before the projections are.
struct TileAngles {
  Rotation rotations[kRotate != 0 ? kAnglesEach : 1];
};
NODEWRIGHT_DEVICE TileAngles tile_angles(const float* frequencies) {
  TileAngles angles{};
  if constexpr (kRotate != 0) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int e = 0; e < kAnglesEach; ++e)
      angles.rotations[e] =
          rotation_of(frequencies, static_cast<int>(min(static_cast<int>(threadIdx.x) + e * kThreads, kHalf - 1)));
  }
  return angles;
}
NODEWRIGHT_DEVICE void find_turns(const RopeTile& m, const TileAngles& angles, int position) {
  if constexpr (kRotate != 0) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int e = 0; e < kAnglesEach; ++e)
      if (const int i = static_cast<int>(threadIdx.x) + e * kThreads; i < kHalf)
        m.turns[i] = turn_of(position, angles.rotations[e]);
  }
}

// This thread's gains, before the projections are there.
struct TileGains {
  bf16 first[kHeadNorm != 0 ? kTurnsEach : 1], second[kHeadNorm != 0 ? kTurnsEach : 1];
};
template <class Args>
NODEWRIGHT_DEVICE TileGains tile_gains(const Args& args, int head0) {
  TileGains gains{};
  if constexpr (kHeadNorm != 0) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int e = 0; e < kTurnsEach; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * kThreads, head = i / kHalf, pair = i % kHalf;
      if (head > kTileHeads) continue;
      const bf16* gain = head == kTileHeads ? args.k_gain.data + gain_of_head(head0 / kGroup)
                                            : args.q_gain.data + gain_of_head(head0 + head);
      gains.first[e] = gain[pair];
      gains.second[e] = gain[pair + kHalf];
    }
  }
  return gains;
}

// store(h, i, v): element i of head h of the tile. `has_own`: own_key and own_value, too, which are then appended to
// `own_page` of the cache by the first tile of their key head. Returns when all can be read. `args` has qkv, kv,
// qkv_stride, eps and the scales.
template <class Args, class Store>
NODEWRIGHT_DEVICE void rotate_tile(const Args& args, int row, int head0, bool has_own, int position, int own_page,
                                   const RopeTile& m, const TileGains& gains, Store store) {
  const int kv_head = head0 / kGroup,
            heads = has_own ? kTileHeads + 1 : kTileHeads;  // those of the tile, then the key's
  const float* qkv = args.qkv.data + row * args.qkv_stride;
  const auto head_at = [&](int head) {
    return qkv + (head == kTileHeads ? kHeads + kv_head : static_cast<int64_t>(head0) + head) * kHeadDim;
  };
  // Everything is requested before anything is used, and by threads that have no use for it, too: one after the other,
  // or after branches, these loads would take longer than attention.
  Pair pairs[kTurnsEach];
  float value[kValuesEach];
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int e = 0; e < kTurnsEach; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads, head = i / kHalf;
    const float* const from = head_at(head < heads ? head : 0) + i % kHalf;
    pairs[e] = {from[0], from[kHalf]};
  }
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int e = 0; e < kValuesEach; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads;
    value[e] = qkv[(kHeads + kKvHeads + kv_head) * kHeadDim + (i < kHeadDim ? i : 0)];
  }
  if constexpr (kHeadNorm == 0) __syncthreads();  // turns; head_scales ends with one
  if constexpr (kWidthNorm)
    width_scales<kThreads / 32>(m.scales, kTileHeads, args.eps, qkv, reinterpret_cast<float*>(m.own_key));
  else
    head_scales<kTileHeads + 1, kThreads / 32>(m.scales, heads, args.eps, head_at);
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int e = 0; e < kTurnsEach; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads, head = i / kHalf, pair = i % kHalf;
    if (head >= heads) continue;
    if constexpr (kHeadNorm != 0)
      pairs[e] = {normed_element(pairs[e].first, m.scales[head], gains.first[e]),
                  normed_element(pairs[e].second, m.scales[head], gains.second[e])};
    if constexpr (kRotate != 0) pairs[e] = turned(pairs[e], m.turns[pair]);
    if (head == kTileHeads) {
      m.own_key[pair] = to_cache(pairs[e].first, args.key_scale);
      m.own_key[pair + kHalf] = to_cache(pairs[e].second, args.key_scale);
    } else {
      store(head, pair, pairs[e].first);
      store(head, pair + kHalf, pairs[e].second);
    }
  }
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int e = 0; e < kValuesEach; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads;
    if (!has_own || i >= kPaddedHeadDim) continue;
    m.own_value[i] = to_cache(i < kHeadDim ? value[e] : 0.0f, args.value_scale);
    if (i >= kHeadDim) m.own_key[i] = KvElement{0};
  }
  __syncthreads();
  if (has_own && head0 % kGroup == 0) {  // tiles of one kv head share its key
    KvElement* to = pool_of(args.kv.data) +
                    kv_offset(own_page, 0, kv_head, position % kPageSize, kKvHeads, kPageSize, kPaddedHeadDim);
    const int i = static_cast<int>(threadIdx.x) * kPiece;  // a warp holds the largest head
    if (i < kPaddedHeadDim) {
      to += place_in_row(static_cast<int>(position % kPageSize), i);
      store_16(to, load_16(m.own_key + i));
      store_16(to + kKvHeads * kPageSize * kPaddedHeadDim, load_16(m.own_value + i));
    }
  }
}

}  // namespace nodewright
