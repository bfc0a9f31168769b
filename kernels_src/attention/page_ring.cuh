// Keys and values of pages on their way to shared memory, for tiles_by_warpgroups.cuh: a ring of stages of a page each,
// which one warpgroup fills and the others use. Keys and values of a stage have two barriers each: full, which counts
// what has come, and empty, which counts the warps that have used it.
//
// A stage has rows of 64 elements in the 128-byte swizzle: [keys, values][kDim / 64][kPageKeys][64]. kv_in_row leaves
// every 64 elements of a token in this order.
#pragma once

#include "kernels_src/attention/tile_rows.cuh"
#include "kernels_src/device/bulk_copies.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace nodewright {

constexpr int kHeld = static_cast<int>(kStages);
constexpr int kBlockBytes = kPageKeys * 128;         // of 64 elements of each key
constexpr int kHalfBytes = kDim / 64 * kBlockBytes;  // keys, or values
constexpr bool kInBulk = kDim == 64;                 // a page has its rows as a stage does
constexpr int kPieces = kDim / 8;                    // of 16 bytes, of a token

// Where a thread is in the ring's keys, or in its values.
struct RingPlace {
  uint32_t first_stage, first_barriers;  // addresses in shared memory
  int stage = 0;
  unsigned phase = 0;

  NODEWRIGHT_DEVICE uint32_t address() const { return first_stage + stage * 2 * kHalfBytes; }
  NODEWRIGHT_DEVICE CopyBarrier full() const { return {first_barriers + 16u * stage}; }
  NODEWRIGHT_DEVICE CopyBarrier empty() const { return {first_barriers + 16u * stage + 8}; }
  NODEWRIGHT_DEVICE void next() {
    if (++stage == kHeld) stage = 0, phase ^= 1;
  }
  // Until the stage has come, for wgmma.
  NODEWRIGHT_DEVICE void wait() const {
    full().wait(phase);
    if constexpr (!kInBulk) order_stores_before_copies();
  }
  // A warp that has used the stage.
  NODEWRIGHT_DEVICE void release() {
    if (threadIdx.x % 32 == 0) empty().arrive();
    next();
  }
};

// What the block has in shared memory: stages, q of each row, barriers.
struct PageRing {
  uint32_t stages, queries, barriers;

  NODEWRIGHT_DEVICE PageRing()
      : stages((shared_address(shared_memory()) + 1023) & ~1023u),
        queries(stages + kHeld * 2 * kHalfBytes),
        barriers(queries + kTileRows * kDim * 2) {
    if (threadIdx.x == 0) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 2 * kHeld; ++i) {
        CopyBarrier{barriers + 16u * i}.init(kInBulk ? 1 : 128);
        CopyBarrier{barriers + 16u * i + 8}.init(4 * static_cast<int>(kWarpgroups));
      }
      CopyBarrier::publish();
    }
    __syncthreads();
  }
  NODEWRIGHT_DEVICE RingPlace keys() const { return {stages, barriers}; }
  NODEWRIGHT_DEVICE RingPlace values() const { return {stages + kHalfBytes, barriers + 16 * kHeld}; }
};

// Fills the ring with the pages of a run. Called by a warpgroup, or by one warp of it where copies are kInBulk.
struct PageCopier {
  const bf16* kv;  // of the key head
  const int* table;
  int oldest, last;  // keys; others become zeros: nothing may have been written there, and 0 * NaN is NaN

  // Keys (half 0) or values (half 1) of the page of keys `key0` on.
  NODEWRIGHT_DEVICE void request(int half, int key0, RingPlace& place) const {
    place.empty().wait(place.phase ^ 1);
    const bf16* page = kv + kv_offset(table[key0 / kPageKeys], half, 0, 0, kKvHeads, kPageSize, kPaddedHeadDim);
    const int first = max(oldest - key0, 0), end = min(last + 1 - key0, kPageKeys);
    if constexpr (kInBulk)
      request_in_bulk(page, first, end, place);
    else
      request_pieces(page, first, end, place);
    place.next();
  }

 private:
  NODEWRIGHT_DEVICE static void request_in_bulk(const bf16* page, int first, int end, const RingPlace& place) {
    const int bytes = (end - first) * 128;
    if (end - first < kPageKeys) {
      NODEWRIGHT_NO_UNROLL
      for (int piece = static_cast<int>(threadIdx.x % 32); piece < kPageKeys * 8; piece += 32)
        if (piece / 8 < first || piece / 8 >= end) store_zeros(place.address() + piece * 16);
      order_stores_before_copies();
      __syncwarp();
    }
    if (elected_lane()) {
      place.full().arrive_and_expect(bytes);
      place.full().copy(place.address() + first * 128, page + first * kDim, bytes);
    }
  }
  // Each thread has one piece of every (128 / kPieces)-th token.
  NODEWRIGHT_DEVICE static void request_pieces(const bf16* page, int first, int end, const RingPlace& place) {
    constexpr int kTokensApart = 128 / kPieces;
    const int thread = static_cast<int>(threadIdx.x % 128), piece = thread % kPieces, token = thread / kPieces;
    const bf16* from = page + token * kDim + piece * 8;
    const uint32_t to = place.address() + piece / 8 * kBlockBytes + token * 128 + piece % 8 * 16;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kPageKeys / kTokensApart; ++i) {
      const int key = token + i * kTokensApart;
      copy_16(to + i * kTokensApart * 128, from + i * kTokensApart * kDim, key >= first && key < end);
    }
    place.full().arrive_after_copies();
  }
};

}  // namespace nodewright

#endif
