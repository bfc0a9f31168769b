// Keys and values of pages on their way to shared memory, for tiles_by_warpgroups.cuh: a ring of stages of a page each,
// which one warpgroup fills and the others use. Keys and values of a stage have two barriers each: full, which counts
// what has come, and empty, which counts the warps that have used it.
//
// A stage has rows of 64 elements in the 128-byte swizzle: [keys, values][kDim / 64][kPageKeys][64]. kv_in_row leaves
// every 64 elements of a token in this order. With FP8 each thread copies its pieces of a page to a place of its own,
// and when they have come stores them to the stage as bf16.
#pragma once

#include "kernels_src/attention/tile_rows.cuh"
#include "kernels_src/device/bulk_copies.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace nodewright {

constexpr int kHeld = static_cast<int>(kStages);
constexpr int kBlockBytes = kPageKeys * 128;         // of 64 elements of each key
constexpr int kHalfBytes = kDim / 64 * kBlockBytes;  // keys, or values
constexpr bool kInBulk = kDim == 64 && !kFp8Cache;   // a page has its rows as a stage does
constexpr int kPieces = kDim / kPiece;               // of 16 bytes, of a token

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

// What the block has in shared memory: stages, q of each row, barriers, and pieces of FP8 on their way.
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
  NODEWRIGHT_DEVICE uint32_t staged() const { return barriers + 32 * kHeld; }
  NODEWRIGHT_DEVICE RingPlace keys() const { return {stages, barriers}; }
  NODEWRIGHT_DEVICE RingPlace values() const { return {stages + kHalfBytes, barriers + 16 * kHeld}; }
};

// Fills the ring with the pages of a run, of bf16. Called by a warpgroup, or by one warp of it where copies are
// kInBulk.
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

// Four elements of FP8 to two pairs of bf16, exactly, a NaN, too.
NODEWRIGHT_DEVICE uint2 bf16_pairs_of(uint32_t four) {
  const uint2 pairs = halves_of_fp8(four);
  const float2 low = floats_of_halves(pairs.x), high = floats_of_halves(pairs.y);
  return {round_pair(low.x, low.y), round_pair(high.x, high.y)};
}

// The same for pages of FP8. Called by a warpgroup.
struct Fp8Copier {
  static constexpr int kThreadPieces = kPageKeys * kPieces / 128, kTokensApart = 128 / kPieces;
  static constexpr int kStaged = static_cast<int>(AttendTilesShape::kStagedPages);
  static constexpr int kValuesBehindKeys = static_cast<int>(kKvHeads * kPageSize * kPaddedHeadDim);

  RingPlace keys, values;
  uint32_t staged;            // [kStaged][keys, values][kThreadPieces][128] pieces: the thread's first
  int asked = 0, stored = 0;  // pages
  // Eight threads that store together have four pieces of two tokens, which lie in different banks.
  int token = static_cast<int>(threadIdx.x % 128) / (2 * kPieces) * 2 + static_cast<int>(threadIdx.x) / 4 % 2;
  int piece = static_cast<int>(threadIdx.x) % 4 + static_cast<int>(threadIdx.x) / 8 % (kPieces / 4) * 4;
  AsyncCopies<1> copies;

  NODEWRIGHT_DEVICE explicit Fp8Copier(const PageRing& ring)
      : keys(ring.keys()), values(ring.values()), staged(ring.staged() + threadIdx.x % 128 * 16) {}

  // A page of the key head; tokens outside first .. end - 1 become zeros.
  NODEWRIGHT_DEVICE void request(const KvElement* page, int first, int end) {
    NODEWRIGHT_UNROLL
    for (int half = 0; half < 2; ++half) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kThreadPieces; ++i) {
        const int key = token + i * kTokensApart;
        copy_16(place_of(asked, half, i), page + half * kValuesBehindKeys + key * kDim + piece * kPiece,
                key >= first && key < end);
      }
    }
    copies.close_group();
    if (++asked - stored < kStaged) return;
    copies.wait<kStaged - 1>();
    store_next();
  }
  NODEWRIGHT_DEVICE void finish() {
    copies.wait<0>();
    NODEWRIGHT_NO_UNROLL
    while (stored < asked) store_next();
  }

 private:
  NODEWRIGHT_DEVICE uint32_t place_of(int page, int half, int i) const {
    return staged + static_cast<uint32_t>(((page % kStaged * 2 + half) * kThreadPieces + i) * 128 * 16);
  }
  NODEWRIGHT_DEVICE void store_next() {
    store(0, keys);
    store(1, values);
    ++stored;
  }
  NODEWRIGHT_DEVICE void store(int half, RingPlace& place) const {
    place.empty().wait(place.phase ^ 1);
    NODEWRIGHT_UNROLL_BY(kDim / 64)  // registers are few
    for (int i = 0; i < kThreadPieces; ++i) {
      const int key = token + i * kTokensApart,
                d = place_in_row(key, piece * kPiece);  // the permutation is its inverse
      const uint4 codes = load_shared(place_of(stored, half, i));
      const uint2 a = bf16_pairs_of(codes.x), b = bf16_pairs_of(codes.y), c = bf16_pairs_of(codes.z),
                  e = bf16_pairs_of(codes.w);
      const uint32_t to = place.address() + d / 64 * kBlockBytes + key * 128, at = ((d % 64 / 8) ^ key % 8) * 16;
      store_shared(to + at, uint4{a.x, a.y, b.x, b.y});
      store_shared(to + (at ^ 16), uint4{c.x, c.y, e.x, e.y});
    }
    order_stores_before_copies();
    place.full().arrive();
    place.next();
  }
};

}  // namespace nodewright

#endif
