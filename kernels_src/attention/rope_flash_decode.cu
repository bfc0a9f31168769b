// Block (s, t, m): split s of the context, head tile t, row m, as in flash_decode.cu. Every block rotates the heads of
// its tile for itself; the one whose split ends with the row's own position appends the row's key to the cache. Keys
// that other rows of the same sequence append in this launch are rotated once more from their projections.
#include "kernels_src/attention/flash_attention.cuh"
#include "kernels_src/attention/flash_decode.h"
#include "kernels_src/attention/rope_tile.cuh"

namespace nodewright {

// Key and value of another row of the step, as that row appends them, into rows of a stage; by a whole warp.
NODEWRIGHT_DEVICE void rotate_key(const RopeFlashDecode& args, int row, int position, int kv_head, KvElement* key,
                                  KvElement* value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const float* k = args.qkv.data + row * args.qkv_stride + (kHeads + kv_head) * kHeadDim;
  const float* v = k + kKvHeads * kHeadDim;
  const auto in_row = [&](int d) { return place_in_row(position % static_cast<int>(kPageSize), d); };
  float scale = 1.0f;
  const bf16* const gain = args.k_gain.data + gain_of_head(kv_head);
  if constexpr (kWidthNorm)
    scale = width_scale(warp_sum(width_squares(k - kv_head * kHeadDim, kKvHeads, lane, 32)), kKvHeads, args.eps);
  else if constexpr (kHeadNorm != 0)
    scale = head_scale(warp_sum(head_squares(k)), args.eps);
  NODEWRIGHT_NO_UNROLL
  for (int i = lane; i < kHalf; i += 32) {
    Pair of_key{normed_element(k, i, scale, gain), normed_element(k, i + kHalf, scale, gain)};
    if constexpr (kRotate != 0) of_key = turned(of_key, turn_of(position, rotation_of(args.frequencies.data, i)));
    key[in_row(i)] = to_cache(of_key.first, args.key_scale);
    key[in_row(i + kHalf)] = to_cache(of_key.second, args.key_scale);
  }
  NODEWRIGHT_NO_UNROLL
  for (int i = lane; i < kHeadDim; i += 32) value[in_row(i)] = to_cache(v[i], args.value_scale);
}

}  // namespace nodewright

NODEWRIGHT_KERNEL_OF(rope_flash_decode, RopeFlashDecode, (32 * kWarps), kBlocksOfAnSm) {
  // While the projection runs: where the keys are, the first of them, and the angles. What no other load is needed for
  // is requested at once: each of these loads takes longer than all arithmetic before the wait.
  const int tile = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.z), rows = static_cast<int>(gridDim.z);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int live = load_settled(args.n_live.data), sequence = load_settled(args.sequences.data + row),
            own = load_settled(args.positions.data + row);
  const int of_lane = min(lane, rows - 1), sequence_of_lane = load_settled(args.sequences.data + of_lane),
            position_of_lane = load_settled(args.positions.data + of_lane);
  const TileAngles angles = tile_angles(args.frequencies.data);
  const TileGains gains = tile_gains(args, tile * kTileHeads);
  const int length = row < live ? own + 1 : 0;
  const int window = static_cast<int>(args.window), oldest = window > 0 && length > window ? length - window : 0;
  const Chunks chunks = chunks_of(oldest, length, static_cast<int>(blockIdx.x));
  const bool works = chunks.first < chunks.last;

  const RopeTile own_heads = rope_tile();
  const FlashMemory memory = flash_memory(static_cast<int>(rope_tile_bytes(kTileHeads, kHeadDim, kPaddedHeadDim)));
  const int head0 = tile * kTileHeads, kv_head = head0 / kGroup;
  const int* const table = args.block_table.data + sequence * args.table_stride;
  ChunkRing ring(args.kv.data, table, kv_head, oldest, own, chunks, memory);
  if (works) ring.find_pages(0);
  const int own_page = works ? load_settled(table + own / kPageSize) : 0;
  const auto is_of_sequence = [&](int r) { return r < live && load_settled(args.sequences.data + r) == sequence; };
  if (lane < live && sequence_of_lane == sequence) ring.end = min(ring.end, position_of_lane);
  NODEWRIGHT_NO_UNROLL
  for (int r = lane + 32; r < rows; r += 32)
    if (is_of_sequence(r)) ring.end = min(ring.end, load_settled(args.positions.data + r));
  const int first_new = ring.end = warp_min(ring.end);  // the cache has the keys before it
  if (works) {
    find_turns(own_heads, angles, own);
    ring.start();
  }
  if constexpr (kInCluster != 0) cluster_arrive();
  release_dependents();
  wait_for_inputs();
  if (!works) return;

  if constexpr (kDim > kHeadDim)
    for (int h = 0; h < kTileHeads; ++h)
      for (int d = static_cast<int>(kHeadDim + threadIdx.x); d < kDim; d += kThreads) store_query(memory, h, d, 0.0f);
  const bool has_own = chunks.last * kChunk >= length;
  rotate_tile(args, row, head0, has_own, own, own_page, own_heads, gains,
              [&](int head, int i, float v) { store_query(memory, head, i, v * args.scale); });
  FlashState state;
  attend_chunks(ring, length, args.value_scale, memory, state, [&](KvElement* keys, KvElement* values, int key0) {
    if (key0 + kChunk <= first_new) return;
    for (int position = max(first_new, key0); position < min(length, key0 + kChunk); ++position) {
      KvElement *key = keys + (position - key0) * kStride, *value = values + (position - key0) * kStride;
      if (position < oldest) continue;
      if (position == own) {
        for (int i = lane; i < kPaddedHeadDim; i += 32) {
          const int at = place_in_row(position % static_cast<int>(kPageSize), i);
          key[at] = own_heads.own_key[i], value[at] = own_heads.own_value[i];
        }
        continue;
      }
      for (int r0 = 0; r0 < rows; r0 += 32) {  // whose position it is
        const int r = r0 + lane;
        const bool found = r < rows && is_of_sequence(r) && load_settled(args.positions.data + r) == position;
        const unsigned mask = __ballot_sync(0xffffffffu, found);
        if (mask != 0) rotate_key(args, r0 + __ffs(static_cast<int>(mask)) - 1, position, kv_head, key, value);
      }
    }
    __syncwarp();
  });
  merge_warps(args, row, tile, static_cast<int>(blockIdx.x), chunks, state, memory);
}
