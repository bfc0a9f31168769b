// y = softmax(q k^T * scale) v over keys 0 .. position, or the last `window` of them. Block (s, t, m): split s of the
// context, head tile t, row m. See attention/flash_attention.cuh.
#include "kernels_src/attention/flash_attention.cuh"
#include "kernels_src/attention/flash_decode.h"

NODEWRIGHT_KERNEL_OF(flash_decode, Attend, (32 * kWarps), kBlocksOfAnSm) {
  const int tile = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.z);
  const int live = load_settled(args.n_live.data), position = load_settled(args.positions.data + row),
            sequence = load_settled(args.sequences.data + row);
  const int length = row < live ? position + 1 : 0;
  const int window = static_cast<int>(args.window), oldest = window > 0 && length > window ? length - window : 0;
  const Chunks chunks = chunks_of(oldest, length, static_cast<int>(blockIdx.x));
  const bool works = chunks.first < chunks.last;
  const FlashMemory memory = flash_memory(0);
  ChunkRing ring(args.kv.data, args.block_table.data + sequence * args.table_stride,
                 tile * kTileHeads / static_cast<int>(kHeads / kKvHeads), oldest, length, chunks, memory);
  if (works) ring.find_pages(0);
  if constexpr (kInCluster != 0) cluster_arrive();
  wait_for_inputs();
  if (works) ring.start();
  release_behind_wait();  // not before: the next kernel's weights would stand in the way
  if (!works) return;

  const float* q = args.q.data + (static_cast<int64_t>(row) * kHeads + tile * kTileHeads) * kHeadDim;
  for (int i = static_cast<int>(threadIdx.x); i < kTileHeads * kDim; i += kThreads) {
    const int head = i / kDim, d = i % kDim;
    store_query(memory, head, d, d < kHeadDim ? q[head * kHeadDim + d] * args.scale : 0.0f);
  }
  __syncthreads();
  FlashState state;
  attend_chunks(ring, length, args.value_scale, memory, state, [](KvElement*, KvElement*, int) {});
  merge_warps(args, row, tile, static_cast<int>(blockIdx.x), chunks, state, memory);
}
