// attend_tiles with mma.sync: a warp multiplies its 16 rows by the keys and values of the page that the block has
// copied, with an instruction for each 16 bytes, while the next page is on its way, if shared memory holds two.
#pragma once

#include "kernels_src/attention/tile_rows.cuh"

namespace nodewright {

constexpr int kPagesHeld = kStages > 1 ? 2 : 1;
constexpr int kRowPieces = kDim / kPiece, kStride = (kRowPieces | 1) * kPiece, kQueryStride = kDim + 8;
constexpr int kChunks = kPageKeys * kRowPieces;                     // of 16 bytes, of the keys or the values of a page
constexpr int kThreadChunks = (kChunks + kThreads - 1) / kThreads;  // a thread's share
constexpr int kPartKeys = kDim < 128 ? 64 : 32;                     // whose scores fit into registers at once
constexpr bool kQueriesInRegisters = kDim <= 128;

using PageCopies = AsyncCopies<2 * kThreadChunks>;

// Requests keys and values of the page that holds key0 on. Keys outside oldest .. last become zeros: nothing may have
// been written there, and 0 * NaN is NaN.
NODEWRIGHT_DEVICE void request_page(PageCopies& copies, KvElement* keys, const AttendTiles& args, int64_t page,
                                    int kv_head, int key0, int oldest, int last) {
  // 128 chunks are as many times eight rows: a thread's are all at one place of theirs.
  constexpr bool kOnePlace = 16 % kRowPieces == 0;
  const auto place_of = [](int chunk) { return place_in_row(chunk / kRowPieces, chunk % kRowPieces * kPiece); };
  const int own_place = place_of(static_cast<int>(threadIdx.x));
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int i = 0; i < kThreadChunks; ++i) {
    const int chunk = static_cast<int>(threadIdx.x) + i * kThreads;
    if (kChunks % kThreads != 0 && chunk >= kChunks) break;
    const int key = chunk / kRowPieces, d = chunk % kRowPieces * kPiece;
    const bool valid = key0 + key >= oldest && key0 + key <= last && (kDim == kPaddedHeadDim || d < kPaddedHeadDim);
    const KvElement* from =
        pool_of(args.kv.data) + (valid ? kv_offset(page, 0, kv_head, key, kKvHeads, kPageSize, kPaddedHeadDim) +
                                             (kOnePlace ? own_place : place_of(chunk))
                                       : 0);
    copies.request(keys + key * kStride + d, from, valid);
    copies.request(keys + (kPageKeys + key) * kStride + d, from + (valid ? kKvHeads * kPageSize * kPaddedHeadDim : 0),
                   valid);
  }
  copies.close_group();
}

// q * scale as the left operand: rows g and g + 8, elements 2t, 2t + 1 of each half of a step. In registers, or where
// those are too few, in shared memory.
struct Queries {
  uint32_t in_registers[kQueriesInRegisters ? kSteps : 1][4];
  bf16* shared;  // [16][kQueryStride], this warp's, as operands

  NODEWRIGHT_DEVICE void load(const AttendTiles& args, const WarpRows& warp, int end, int head) {
    const int lane = static_cast<int>(threadIdx.x % 32), group = lane / 4, pair = lane % 4 * 2;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int step = 0; step < kSteps; ++step) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i) {
        const int column = step * 16 + i / 2 * 8 + pair;
        const uint32_t packed = query_pair(args, warp.rows[i % 2], end, head, element_at(column));
        if constexpr (kQueriesInRegisters)
          in_registers[step][i] = packed;
        else
          *reinterpret_cast<uint32_t*>(shared + (group + i % 2 * 8) * kQueryStride + column) = packed;
      }
    }
    if constexpr (!kQueriesInRegisters) __syncwarp();
  }

  NODEWRIGHT_DEVICE void operand(uint32_t (&left)[4], int step) const {
    if constexpr (kQueriesInRegisters) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i) left[i] = in_registers[step][i];
    } else {
      const int lane = static_cast<int>(threadIdx.x % 32);
      load_matrices(left, shared + (lane % 16) * kQueryStride + step * 16 + lane / 16 * 8);
    }
  }
};

// Attends to kPartKeys keys from key `key0` on.
NODEWRIGHT_DEVICE void attend_part(const Queries& queries, const KvElement* keys, const Run& run, int key0,
                                   RowSums& sums) {
  const KvElement* const part_values = keys + kPageKeys * kStride;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float products[kPartKeys / 16][1][2][4] = {};
  multiply_keys<kSteps>(
      products, [&queries](uint32_t(&left)[4], int step) { queries.operand(left, step); },
      [&](int n, int i) {
        return keys + (n * 16 + lane / 16 * 8 + lane % 8) * kStride + i * 2 * kPiece +
               half_of_load<kSteps>(i, lane / 8 % 2) * kPiece;
      });
  auto& scores = reinterpret_cast<float(&)[kPartKeys / 8][4]>(products);
  mask_scores(scores, run, key0);
  float base[2], keep[2];
  sums.raise(scores, base, keep);
  sums.rescale_values(keep);
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int r = 0; r < 2; ++r) sums.sum[r] *= keep[r];
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int k = 0; k < kPartKeys / 16; ++k) {
    uint32_t p[4];
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < 4; ++i) {
      const int r = i % 2;
      const float low = power_of_two(scores[2 * k + i / 2][2 * r] - base[r]);
      const float high = power_of_two(scores[2 * k + i / 2][2 * r + 1] - base[r]);
      sums.sum[r] += low + high;
      p[i] = operand_pair<kHalves>(low, high);
    }
    multiply_values(sums.values, p, [&](int i) {
      return part_values + (k * 16 + lane / 8 % 2 * 8 + lane % 8) * kStride + i * 2 * kPiece +
             half_of_load<kSteps>(i, lane / 16) * kPiece;
    });
  }
}

// The pages of a sequence that the run attends to, one after the other. `tiles`: [kPagesHeld][keys, values][kPageKeys]
// [kStride].
NODEWRIGHT_DEVICE void attend_run(const AttendTiles& args, const Run& run, const int* table, int kv_head,
                                  KvElement* tiles, const Queries& queries, RowSums& sums) {
  PageCopies copies;
  int stage = 0;
  const auto request = [&](KvElement* to, int page) {
    request_page(copies, to, args, table[page], kv_head, page * kPageKeys, run.oldest, run.last_position);
  };
  request(tiles, run.oldest / kPageKeys);
  for (int page = run.oldest / kPageKeys; page * kPageKeys <= run.last_position; ++page, stage ^= kPagesHeld - 1) {
    if (kPagesHeld > 1 && (page + 1) * kPageKeys <= run.last_position) {
      request(tiles + (stage ^ 1) * 2 * kPageKeys * kStride, page + 1);
      copies.template wait<1>();
    } else {
      copies.template wait<0>();
    }
    __syncthreads();
    const KvElement* keys = tiles + stage * 2 * kPageKeys * kStride;
    for (int part = 0; part < kPageKeys; part += kPartKeys) {
      const int key0 = page * kPageKeys + part;
      if (key0 > run.warp_last) break;
      attend_part(queries, keys + part * kStride, run, key0, sums);
    }
    __syncthreads();  // the next page but one overwrites this one, or the next
    if (kPagesHeld == 1 && (page + 1) * kPageKeys <= run.last_position) request(tiles, page + 1);
  }
}

NODEWRIGHT_DEVICE void attend_by_warps(const AttendTiles& args, int first, int end, int head, int kv_head) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const WarpRows mine = rows_of_warp(first + warp * 16, end);
  // [kPagesHeld][keys, values][kPageKeys][kStride], then q
  KvElement* tiles = reinterpret_cast<KvElement*>(shared_memory());
  Queries queries;
  if constexpr (kFp8Cache)
    queries.shared = reinterpret_cast<bf16*>(tiles + 2 * kPagesHeld * kPageKeys * kStride) + warp * 16 * kQueryStride;
  else
    queries.shared = reinterpret_cast<bf16*>(tiles) + (2 * kPagesHeld * kPageKeys + warp * 16) * kQueryStride;
  queries.load(args, mine, end, head);
  RowSums sums;
  sums.clear();
  for_each_run(args, first, end, [&](int run_first, int run_end, const int* table) {
    const Run run = run_of(args, mine, run_first, run_end);
    sums.begin(run);
    attend_run(args, run, table, kv_head, tiles, queries, sums);
    sums.store(args, mine, run, head);
  });
}

}  // namespace nodewright
