// y = softmax(q k^T * scale) v over keys 0 .. position, or the last `window` of them, with q, k, v and the
// probabilities in bf16, sums in fp32. Block (s, t, m): split s of the context, head tile t, row m. The context is
// dealt in chunks of 16 keys, which lie in one page: a split takes some that lie together, warp w of it those whose
// number is w, modulo the warps. A warp requests kRing chunks ahead and waits for no other warp until its last chunk;
// then the warps of a block meet in shared memory, in their order, and the splits of a row in global memory
// (device/merge_splits.cuh): a row's bits depend on its own tokens only.
#include "kernels_src/device/merge_splits.cuh"
#include "kernels_src/device/tensor.cuh"
#include "kernels_src/flash_decode.h"
#include "kernels_src/kv_pages.h"

#ifndef __CUDACC_RTC__  // the host compiler needs ten times as long for unrolled loops, which no register waits for
#undef NODEWRIGHT_UNROLL
#define NODEWRIGHT_UNROLL
#endif

namespace nodewright {

constexpr int kChunk = 16;
constexpr int kDim = static_cast<int>((kHeadDim + 15) / 16 * 16);
constexpr int kStride = kDim + 8;
constexpr int kSteps = kDim / 16;                 // of 16 elements of a head
constexpr int kStage = 2 * kChunk * kStride;      // elements: keys, then values
constexpr int kPieces = kChunk * kDim / 8 / 32;   // of 16 bytes, of a chunk's keys or values: a lane's share
constexpr int kHalves = kTileHeads <= 8 ? 1 : 2;  // of a matrix of 16 rows that hold heads
constexpr bool kQueriesInRegisters = kDim <= 128;
constexpr unsigned kBlocksOfAnSm = kDim <= 128 && kWarps <= 4 ? 3 : 1;
constexpr int kMeeting = static_cast<int>(kWarps > kSplits ? kWarps : kSplits);
static_assert(kPageSize % kChunk == 0, "a chunk lies in one page");
static_assert(kTileHeads <= 16, "a matrix holds the heads of a tile");

using ChunkCopies = AsyncCopies<2 * kPieces, static_cast<int>(kRing)>;

// The chunks of one block, by number: chunk c is keys 16 c to 16 c + 15.
struct Chunks {
  int first, last;  // none when first >= last
  int splits;       // that have any
};
NODEWRIGHT_DEVICE Chunks chunks_of(int oldest, int length, int split) {
  const int from = oldest / kChunk, count = (length + kChunk - 1) / kChunk - from;
  const int share = max(static_cast<int>((count + kSplits - 1) / kSplits), static_cast<int>(kWarps));
  const int first = from + split * share;
  return {first, min(first + share, from + count), (count + share - 1) / share};
}

// The block's shared memory.
struct FlashMemory {
  bf16* ring;      // [kWarps][kRing][keys, values][kChunk][kStride]; at the end [kWarps] weighted values
  bf16* queries;   // [kChunk][kStride], where q does not fit into registers
  Merged* found;   // [kTileHeads][kWarps]
  float* weights;  // [kTileHeads][kMeeting]
  Merged* merged;  // [kTileHeads]
  int* ticket;
};
NODEWRIGHT_DEVICE FlashMemory flash_memory() {
  FlashMemory m;
  m.ring = reinterpret_cast<bf16*>(shared_memory());
  m.queries = m.ring + kWarps * kRing * kStage;
  m.found = reinterpret_cast<Merged*>(m.queries + (kQueriesInRegisters ? 0 : kChunk * kStride));
  m.weights = reinterpret_cast<float*>(m.found + kTileHeads * kWarps);
  m.merged = reinterpret_cast<Merged*>(m.weights + kTileHeads * kMeeting);
  m.ticket = reinterpret_cast<int*>(m.merged + kTileHeads);
  return m;
}
// Row h of warp w's weighted values, over the first stage of its ring.
NODEWRIGHT_DEVICE float* values_of(const FlashMemory& m, int warp, int h) {
  return reinterpret_cast<float*>(m.ring + warp * static_cast<int>(kRing) * kStage) + h * kStride;
}

}  // namespace nodewright

NODEWRIGHT_KERNEL_OF(flash_decode, Attend, (32 * kWarps), kBlocksOfAnSm) {
  const int tile = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.z);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int live = load_settled(args.n_live.data);
  const int length = row < live ? load_settled(args.positions.data + row) + 1 : 0;
  const int window = static_cast<int>(args.window), oldest = window > 0 && length > window ? length - window : 0;
  const Chunks chunks = chunks_of(oldest, length, static_cast<int>(blockIdx.x));
  const bool works = chunks.first < chunks.last;

  // The warp's i-th chunk; lane l knows the page of one of the next 32.
  const auto chunk_of = [&](int i) { return chunks.first + warp + i * static_cast<int>(kWarps); };
  const int* table = args.block_table.data + row * args.table_stride;
  const auto page_for = [&](int i) {
    const int chunk = chunk_of(i);
    return chunk < chunks.last ? load_settled(table + chunk * kChunk / kPageSize) : 0;
  };
  int pages = works ? page_for(lane) : 0;
  wait_for_inputs();
  if (!works) {
    release_dependents();
    return;
  }

  const FlashMemory memory = flash_memory();
  const int kv_head = tile * kTileHeads / static_cast<int>(kHeads / kKvHeads);
  ChunkCopies copies;
  // Keys outside oldest .. length become zeros: nothing may have been written there, and 0 * NaN is NaN.
  const auto request = [&](int i) {
    if (i > 0 && i % 32 == 0) pages = page_for(i + lane);
    const int page = __shfl_sync(0xffffffffu, pages, i % 32), chunk = chunk_of(i), key0 = chunk * kChunk;
    if (chunk < chunks.last) {
      bf16* stage = memory.ring + (warp * static_cast<int>(kRing) + i % static_cast<int>(kRing)) * kStage;
      const bf16* from =
          args.kv.data + kv_offset(page, 0, kv_head, key0 % kPageSize, kKvHeads, kPageSize, kPaddedHeadDim);
      NODEWRIGHT_UNROLL
      for (int value = 0; value < 2; ++value) {
        NODEWRIGHT_UNROLL
        for (int p = 0; p < kPieces; ++p) {
          const int piece = lane + p * 32, key = piece / (kDim / 8), d = piece % (kDim / 8) * 8;
          const bool valid =
              key0 + key >= oldest && key0 + key < length && (kDim == kPaddedHeadDim || d < kPaddedHeadDim);
          const int64_t offset = value * kKvHeads * kPageSize * kPaddedHeadDim + key * kPaddedHeadDim + d;
          copies.request(stage + (value * kChunk + key) * kStride + d, from + (valid ? offset : 0), valid);
        }
      }
    }
    copies.close_group();
  };
  for (int i = 0; i < kRing; ++i) request(i);
  release_dependents();  // not before: the next kernel's weights would stand in the way

  // q as the left operand: heads group and group + 8, elements 2t, 2t + 1 of each half of a step.
  const int group = lane / 4, pair = lane % 4 * 2;
  uint32_t q[kQueriesInRegisters ? kSteps : 1][4];
  const float* queries = args.q.data + (static_cast<int64_t>(row) * kHeads + tile * kTileHeads) * kHeadDim;
  NODEWRIGHT_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int head = group + i % 2 * 8, d = step * 16 + i / 2 * 8 + pair;
      uint32_t packed = 0;
      if (i % 2 < kHalves && head < kTileHeads && (kDim == kHeadDim || d < kHeadDim)) {
        const float* from = queries + head * kHeadDim + d;
        packed = round_pair(from[0] * args.scale, from[1] * args.scale);
      }
      if constexpr (kQueriesInRegisters)
        q[step][i] = packed;
      else if (warp == 0)
        *reinterpret_cast<uint32_t*>(memory.queries + head * kStride + d) = packed;
    }
  }
  if constexpr (!kQueriesInRegisters) __syncthreads();

  float values[2 * kSteps][4], top[kHalves], sum[kHalves];
  NODEWRIGHT_UNROLL
  for (int r = 0; r < kHalves; ++r) top[r] = -INFINITY, sum[r] = 0.0f;
  NODEWRIGHT_UNROLL
  for (int n = 0; n < 2 * kSteps; ++n) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 4; ++i) values[n][i] = 0.0f;
  }
  for (int i = 0; chunk_of(i) < chunks.last; ++i) {
    copies.template wait<static_cast<int>(kRing) - 1>();
    __syncwarp();
    const int key0 = chunk_of(i) * kChunk;
    const bf16* keys = memory.ring + (warp * static_cast<int>(kRing) + i % static_cast<int>(kRing)) * kStage;
    const bf16* chunk_values = keys + kChunk * kStride;
    float scores[2][4] = {};
    NODEWRIGHT_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      uint32_t left[4], b[4];
      if constexpr (kQueriesInRegisters) {
        NODEWRIGHT_UNROLL
        for (int j = 0; j < 4; ++j) left[j] = q[step][j];
      } else {
        load_matrices(left, memory.queries + lane % 16 * kStride + step * 16 + lane / 16 * 8);
      }
      load_matrices(b, keys + (lane / 16 * 8 + lane % 8) * kStride + step * 16 + lane / 8 % 2 * 8);
      mma_16x8x16(scores[0], left, b[0], b[1]);
      mma_16x8x16(scores[1], left, b[2], b[3]);
    }
    if (key0 < oldest || key0 + kChunk > length) {
      NODEWRIGHT_UNROLL
      for (int n = 0; n < 2; ++n) {
        NODEWRIGHT_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int key = key0 + n * 8 + pair + j % 2;
          if (key < oldest || key >= length) scores[n][j] = -INFINITY;
        }
      }
    }
    uint32_t p[4] = {};
    NODEWRIGHT_UNROLL
    for (int r = 0; r < kHalves; ++r) {
      const float highest =
          fmaxf(fmaxf(scores[0][2 * r], scores[0][2 * r + 1]), fmaxf(scores[1][2 * r], scores[1][2 * r + 1]));
      const float before = top[r];
      top[r] = fmaxf(before, quad_max(highest));  // finite: every chunk holds a key
      const float keep = power_of_two(before - top[r]);
      sum[r] *= keep;
      NODEWRIGHT_UNROLL
      for (int n = 0; n < 2 * kSteps; ++n) values[n][2 * r] *= keep, values[n][2 * r + 1] *= keep;
      NODEWRIGHT_UNROLL
      for (int n = 0; n < 2; ++n) {
        const float low = power_of_two(scores[n][2 * r] - top[r]), high = power_of_two(scores[n][2 * r + 1] - top[r]);
        sum[r] += low + high;
        p[2 * n + r] = round_pair(low, high);
      }
    }
    NODEWRIGHT_UNROLL
    for (int n = 0; n < kSteps; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, chunk_values + (lane / 8 % 2 * 8 + lane % 8) * kStride + n * 16 + lane / 16 * 8);
      mma_16x8x16(values[2 * n], p, b[0], b[1]);
      mma_16x8x16(values[2 * n + 1], p, b[2], b[3]);
    }
    __syncwarp();  // the chunk that is requested now overwrites this one
    request(i + static_cast<int>(kRing));
  }

  // Warps -> block.
  NODEWRIGHT_UNROLL
  for (int r = 0; r < kHalves; ++r) {
    const int head = group + r * 8;
    const float total = quad_sum(sum[r]);
    if (head >= kTileHeads) continue;
    float* mine = values_of(memory, warp, head);
    NODEWRIGHT_UNROLL
    for (int n = 0; n < 2 * kSteps; ++n)
      mine[n * 8 + pair] = values[n][2 * r], mine[n * 8 + pair + 1] = values[n][2 * r + 1];
    if (pair == 0) memory.found[head * kWarps + warp] = {top[r], total};
  }
  __syncthreads();
  for (int h = warp; h < kTileHeads; h += static_cast<int>(kWarps)) {
    const Merged merged = merge_weights(static_cast<int>(kWarps), memory.weights + h * kMeeting,
                                        [&](int w) { return memory.found[h * kWarps + w]; });
    if (lane == 0) memory.merged[h] = merged;
  }
  __syncthreads();
  merge_splits(args, row, tile, static_cast<int>(blockIdx.x), chunks.splits, memory.weights, kMeeting, memory.merged,
               memory.ticket, [&](int h, int d) {
                 float value = 0.0f;
                 NODEWRIGHT_UNROLL
                 for (int w = 0; w < kWarps; ++w)
                   value = fmaf(values_of(memory, w, h)[d], memory.weights[h * kMeeting + w], value);
                 return value;
               });
}
