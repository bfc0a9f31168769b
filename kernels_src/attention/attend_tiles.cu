// y = softmax(q k^T * scale) v over keys 0 .. position, or the last `window` of them, with q, k, v and the
// probabilities in bf16, sums in fp32. Block (h, t): query head h, the t-th last tile of 64 rows from n_first on; warp
// w: its rows 16 w to 16 w + 15. The block walks over the runs of rows of one sequence in its tile, and for each over
// the pages that the run attends to, while the next page is on its way, if shared memory holds two.
// A page that a row does not attend to changes none of its bits, so a row's bits depend on its own tokens only,
// wherever it lies in a tile.
#include "kernels_src/attention/attend_tiles.h"
#include "kernels_src/attention/kv_pages.h"
#include "kernels_src/device/tensor.cuh"

#ifndef __CUDACC_RTC__  // the host compiler needs ten times as long for unrolled loops, which no register waits for
#undef NODEWRIGHT_UNROLL
#define NODEWRIGHT_UNROLL
#endif

namespace nodewright {

constexpr int kTileRows = 64;
constexpr int kPageKeys = static_cast<int>(kPageSize);
constexpr int kDim = static_cast<int>((kHeadDim + 15) / 16 * 16);
constexpr int kStride = kDim + 8;
constexpr int kSteps = kDim / 16;                     // of 16 elements of a head
constexpr int kChunks = kPageKeys * (kDim / 8);       // of 16 bytes, of the keys or the values of a page
constexpr int kThreadChunks = (kChunks + 127) / 128;  // a thread's share
constexpr int kPartKeys = kDim < 128 ? 64 : 32;       // whose scores fit into registers at once
constexpr bool kQueriesInRegisters = kDim <= 128;
constexpr unsigned kBlocksOfAnSm = kDim <= 128 ? 3 : 1;  // as shared memory holds; 168 or 255 registers a thread
static_assert(kPageSize == 64, "a tile of keys is a page");
constexpr int kHeld = static_cast<int>(kStages);  // pages
static_assert(kHeld == 1 || kHeld == 2);

using PageCopies = AsyncCopies<2 * kThreadChunks>;

// Requests keys and values of the page that holds key0 on. Keys outside oldest .. last become zeros: nothing may have
// been written there, and 0 * NaN is NaN.
NODEWRIGHT_DEVICE void request_page(PageCopies& copies, bf16* keys, const AttendTiles& args, int64_t page, int kv_head,
                                    int key0, int oldest, int last) {
  // 128 chunks are as many times eight rows: a thread's are all at one place of theirs.
  constexpr bool kOnePlace = 128 % kDim == 0;
  const auto place_of = [](int chunk) { return kv_in_row(chunk / (kDim / 8), chunk % (kDim / 8) * 8, kPaddedHeadDim); };
  const int own_place = place_of(static_cast<int>(threadIdx.x));
  NODEWRIGHT_UNROLL
  for (int i = 0; i < kThreadChunks; ++i) {
    const int chunk = static_cast<int>(threadIdx.x) + i * 128;
    if (kChunks % 128 != 0 && chunk >= kChunks) break;
    const int key = chunk / (kDim / 8), d = chunk % (kDim / 8) * 8;
    const bool valid = key0 + key >= oldest && key0 + key <= last && (kDim == kPaddedHeadDim || d < kPaddedHeadDim);
    const bf16* from = args.kv.data + (valid ? kv_offset(page, 0, kv_head, key, kKvHeads, kPageSize, kPaddedHeadDim) +
                                                   (kOnePlace ? own_place : place_of(chunk))
                                             : 0);
    copies.request(keys + key * kStride + d, from, valid);
    copies.request(keys + (kPageKeys + key) * kStride + d, from + (valid ? kKvHeads * kPageSize * kPaddedHeadDim : 0),
                   valid);
  }
  copies.close_group();
}

}  // namespace nodewright

NODEWRIGHT_KERNEL_OF(attend_tiles, AttendTiles, kAttendTilesThreads, kBlocksOfAnSm) {
  release_dependents();
  wait_for_inputs();
  const int head = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(head / (kHeads / kKvHeads));
  const int tile = static_cast<int>(gridDim.y - 1 - blockIdx.y);  // those that have the most to do begin first
  const int live = args.n_live.data[0], first = args.n_first.data[0] + tile * kTileRows;
  if (first >= live) return;
  const int end = first + kTileRows < live ? first + kTileRows : live;

  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int group = lane / 4, pair = lane % 4 * 2;
  const int warp_first = first + warp * 16, warp_end = warp_first + 16 < end ? warp_first + 16 : end;
  const int rows[2] = {warp_first + group, warp_first + group + 8};
  bf16* tiles = reinterpret_cast<bf16*>(shared_memory());  // [kHeld][keys, values][kPageKeys][kStride], then q
  bf16* queries = tiles + (2 * kHeld * kPageKeys + warp * 16) * kStride;

  // q as the left operand: rows group and group + 8, elements 2t, 2t + 1 of each half of a step.
  uint32_t q[kQueriesInRegisters ? kSteps : 1][4];
  NODEWRIGHT_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = rows[i % 2], d = step * 16 + i / 2 * 8 + pair;
      uint32_t packed = 0;
      if (row < end && (kDim == kHeadDim || d < kHeadDim)) {
        const float* from = args.q.data + (static_cast<int64_t>(row) * kHeads + head) * kHeadDim + d;
        packed = round_pair(from[0] * args.scale, from[1] * args.scale);
      }
      if constexpr (kQueriesInRegisters)
        q[step][i] = packed;
      else
        *reinterpret_cast<uint32_t*>(queries + (group + i % 2 * 8) * kStride + d) = packed;
    }
  }
  if constexpr (!kQueriesInRegisters) __syncwarp();
  float values[2 * kSteps][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
  NODEWRIGHT_UNROLL
  for (int n = 0; n < 2 * kSteps; ++n) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 4; ++i) values[n][i] = 0.0f;
  }

  for (int run = first, run_end = end; run < end; run = run_end) {
    const int sequence = args.sequences.data[run];
    run_end = end;
    if (args.sequences.data[end - 1] != sequence)
      for (run_end = run + 1; args.sequences.data[run_end] == sequence;) ++run_end;
    // In 32 bits, and positions from the run's first: heads of 256 leave no register free.
    const int* table =
        args.block_table.data + static_cast<uint32_t>(sequence) * static_cast<uint32_t>(args.table_stride);
    const int run_first = args.positions.data[run], last = args.positions.data[run_end - 1];
    const int window = static_cast<int>(args.window);
    const int position[2] = {run_first + rows[0] - run, run_first + rows[1] - run};
    const int oldest = window > 0 && run_first >= window ? run_first - window + 1 : 0;
    // What of the run is this warp's.
    const int own_first = warp_first > run ? warp_first : run, own_end = warp_end < run_end ? warp_end : run_end;
    const bool whole = own_first == warp_first && own_end == warp_first + 16;
    const bool in_run[2] = {rows[0] >= run && rows[0] < run_end, rows[1] >= run && rows[1] < run_end};

    PageCopies copies;
    int stage = 0;
    request_page(copies, tiles, args, table[oldest / kPageKeys], kv_head, oldest / kPageKeys * kPageKeys, oldest, last);
    for (int page = oldest / kPageKeys; page * kPageKeys <= last; ++page, stage ^= kHeld - 1) {
      const int key0 = page * kPageKeys;
      if (kHeld > 1 && (page + 1) * kPageKeys <= last) {
        request_page(copies, tiles + (stage ^ 1) * 2 * kPageKeys * kStride, args, table[page + 1], kv_head,
                     key0 + kPageKeys, oldest, last);
        copies.template wait<1>();
      } else {
        copies.template wait<0>();
      }
      __syncthreads();
      const bf16* page_keys = tiles + stage * 2 * kPageKeys * kStride;
      for (int part = 0; part < kPageKeys; part += kPartKeys) {
        const int part0 = key0 + part;
        if (own_first >= own_end || part0 > run_first + (own_end - 1 - run)) break;
        const bf16* keys = page_keys + part * kStride;
        const bf16* part_values = keys + kPageKeys * kStride;
        float scores[kPartKeys / 8][4];
        NODEWRIGHT_UNROLL
        for (int n = 0; n < kPartKeys / 8; ++n) {
          NODEWRIGHT_UNROLL
          for (int i = 0; i < 4; ++i) scores[n][i] = 0.0f;
        }
#ifdef __CUDACC_RTC__
        NODEWRIGHT_UNROLL
        for (int step = 0; step < kSteps; ++step) {
          uint32_t left[4];
          if constexpr (kQueriesInRegisters) {
            NODEWRIGHT_UNROLL
            for (int i = 0; i < 4; ++i) left[i] = q[step][i];
          } else {
            load_matrices(left, queries + (lane % 16) * kStride + step * 16 + lane / 16 * 8);
          }
          NODEWRIGHT_UNROLL
          for (int n = 0; n < kPartKeys / 16; ++n) {
            uint32_t b[4];
            load_matrices(b, keys + (n * 16 + lane / 16 * 8 + lane % 8) * kStride + step * 16 + lane / 8 % 2 * 8);
            mma_16x8x16(scores[2 * n], left, b[0], b[1]);
            mma_16x8x16(scores[2 * n + 1], left, b[2], b[3]);
          }
        }
#else
        const auto key_piece = [&](int n, int step) {
          return keys + (n * 16 + lane / 16 * 8 + lane % 8) * kStride + step * 16 + lane / 8 % 2 * 8;
        };
        if constexpr (kQueriesInRegisters) {
          emulation::multiply_rows(scores, q, key_piece);
        } else {
          uint32_t left[kSteps][4];
          for (int step = 0; step < kSteps; ++step)
            load_matrices(left[step], queries + (lane % 16) * kStride + step * 16 + lane / 16 * 8);
          emulation::multiply_rows(scores, left, key_piece);
        }
#endif
        if (!whole || window > 0 || part0 + kPartKeys - 1 > run_first + (own_first - run)) {
          NODEWRIGHT_UNROLL
          for (int n = 0; n < kPartKeys / 8; ++n) {
            NODEWRIGHT_UNROLL
            for (int i = 0; i < 4; ++i) {
              const int key = part0 + n * 8 + pair + i % 2, at = position[i / 2];
              if (!in_run[i / 2] || key > at || (window > 0 && key <= at - window)) scores[n][i] = -INFINITY;
            }
          }
        }
        // Rows that see none of these keys keep their maximum, their sum and their values.
        float base[2], keep[2];
        NODEWRIGHT_UNROLL
        for (int r = 0; r < 2; ++r) {
          float highest = -INFINITY;
          NODEWRIGHT_UNROLL
          for (int n = 0; n < kPartKeys / 8; ++n)
            highest = fmaxf(highest, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
          highest = fmaxf(top[r], quad_max(highest));
          base[r] = highest == -INFINITY ? 0.0f : highest;
          keep[r] = power_of_two(top[r] - base[r]);
          top[r] = highest;
        }
        if (__any_sync(0xffffffffu, keep[0] != 1.0f || keep[1] != 1.0f)) {  // seldom after the first pages
          NODEWRIGHT_UNROLL
          for (int r = 0; r < 2; ++r) {
            sum[r] *= keep[r];
            NODEWRIGHT_UNROLL
            for (int n = 0; n < 2 * kSteps; ++n) values[n][2 * r] *= keep[r], values[n][2 * r + 1] *= keep[r];
          }
        }
        NODEWRIGHT_UNROLL
        for (int k = 0; k < kPartKeys / 16; ++k) {
          uint32_t p[4];
          NODEWRIGHT_UNROLL
          for (int i = 0; i < 4; ++i) {
            const int n = 2 * k + i / 2, r = i % 2;
            const float low = power_of_two(scores[n][2 * r] - base[r]);
            const float high = power_of_two(scores[n][2 * r + 1] - base[r]);
            sum[r] += low + high;
            p[i] = round_pair(low, high);
          }
#ifdef __CUDACC_RTC__
          NODEWRIGHT_UNROLL
          for (int n = 0; n < kSteps; ++n) {
            uint32_t b[4];
            load_matrices_transposed(
                b, part_values + (k * 16 + lane / 8 % 2 * 8 + lane % 8) * kStride + n * 16 + lane / 16 * 8);
            mma_16x8x16(values[2 * n], p, b[0], b[1]);
            mma_16x8x16(values[2 * n + 1], p, b[2], b[3]);
          }
#else
          emulation::multiply_columns(values, p, [&](int n) {
            return part_values + (k * 16 + lane / 8 % 2 * 8 + lane % 8) * kStride + n * 16 + lane / 16 * 8;
          });
#endif
        }
      }
      __syncthreads();  // the next page but one overwrites this one, or the next
      if (kHeld == 1 && (page + 1) * kPageKeys <= last)
        request_page(copies, tiles, args, table[page + 1], kv_head, key0 + kPageKeys, oldest, last);
    }
  }

  NODEWRIGHT_UNROLL
  for (int r = 0; r < 2; ++r) {
    const float total = quad_sum(sum[r]);
    if (rows[r] >= end) continue;
    bf16* y = args.y.data + rows[r] * args.y_stride + head * kHeadDim;
    NODEWRIGHT_UNROLL
    for (int n = 0; n < 2 * kSteps; ++n) {
      const int d = n * 8 + pair;
      if (kDim == kHeadDim || d < kHeadDim)
        *reinterpret_cast<uint32_t*>(y + d) = round_pair(values[n][2 * r] / total, values[n][2 * r + 1] / total);
    }
  }
}
