// y = softmax(q k^T * scale) v over keys 0 .. position, or the last `window` of them, with q, k, v and the
// probabilities in bf16, sums in fp32. Block (h, t): query head h, the t-th last tile of 64 rows from n_first on; warp
// w: its rows 16 w to 16 w + 15. The block walks over the runs of rows of one sequence in its tile, and for each over
// the pages that the run attends to, while the next page is on its way, if shared memory holds two.
// A page that a row does not attend to changes none of its bits, so a row's bits depend on its own tokens only,
// wherever it lies in a tile.
#include "kernels_src/attention/attend_tiles.h"
#include "kernels_src/attention/kv_pages.h"
#include "kernels_src/device/tensor.cuh"

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
  NODEWRIGHT_UNROLL_ON_DEVICE
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

// The rows of one warp: 16, of which those before `end` count; this lane's are rows[0] and rows[1].
struct WarpRows {
  int first, end;
  int rows[2];
};

// q * scale as the left operand: rows g and g + 8, elements 2t, 2t + 1 of each half of a step. In registers, or where
// those are too few, in shared memory.
struct Queries {
  uint32_t in_registers[kQueriesInRegisters ? kSteps : 1][4];
  bf16* shared;  // [16][kStride], this warp's

  NODEWRIGHT_DEVICE void load(const AttendTiles& args, const WarpRows& warp, int end, int head) {
    const int lane = static_cast<int>(threadIdx.x % 32), group = lane / 4, pair = lane % 4 * 2;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int step = 0; step < kSteps; ++step) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i) {
        const int row = warp.rows[i % 2], d = step * 16 + i / 2 * 8 + pair;
        uint32_t packed = 0;
        if (row < end && (kDim == kHeadDim || d < kHeadDim)) {
          const float* from = args.q.data + (static_cast<int64_t>(row) * kHeads + head) * kHeadDim + d;
          packed = round_pair(from[0] * args.scale, from[1] * args.scale);
        }
        if constexpr (kQueriesInRegisters)
          in_registers[step][i] = packed;
        else
          *reinterpret_cast<uint32_t*>(shared + (group + i % 2 * 8) * kStride + d) = packed;
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
      load_matrices(left, shared + (lane % 16) * kStride + step * 16 + lane / 16 * 8);
    }
  }
};

// The rows of one sequence in a block's tile, as this lane's warp sees them.
struct Run {
  int first_position, last_position;  // of the run
  int oldest;                         // first key that any row of it attends to
  int window;                         // keys attended; 0: all
  int warp_first, warp_last;          // positions of the warp's rows in the run; last: -1 where it has none
  bool whole;                         // all of the warp's rows are in the run
  int position[2];                    // of this lane's rows
  bool holds[2];                      // whether they are in the run
};

// What this lane's rows have of the keys so far: values [n][i] as mma_16x8x16 leaves them.
struct RowSums {
  float values[2 * kSteps][4], top[2], sum[2];

  NODEWRIGHT_DEVICE void clear() {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int r = 0; r < 2; ++r) top[r] = -INFINITY, sum[r] = 0.0f;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < 2 * kSteps; ++n) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i) values[n][i] = 0.0f;
    }
  }

  // Raises the maximum of each row to that of `scores`, and gives what the rows' exponents are taken from. Rows that
  // see none of these keys keep their maximum, their sum and their values.
  NODEWRIGHT_DEVICE void rescale(const float (&scores)[kPartKeys / 16][1][2][4], float (&base)[2]) {
    float keep[2];
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int r = 0; r < 2; ++r) {
      float highest = -INFINITY;
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < kPartKeys / 8; ++n)
        highest = fmaxf(highest, fmaxf(scores[n / 2][0][n % 2][2 * r], scores[n / 2][0][n % 2][2 * r + 1]));
      highest = fmaxf(top[r], quad_max(highest));
      base[r] = highest == -INFINITY ? 0.0f : highest;
      keep[r] = power_of_two(top[r] - base[r]);
      top[r] = highest;
    }
    if (__any_sync(0xffffffffu, keep[0] != 1.0f || keep[1] != 1.0f)) {  // seldom after the first pages
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int r = 0; r < 2; ++r) {
        sum[r] *= keep[r];
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int n = 0; n < 2 * kSteps; ++n) values[n][2 * r] *= keep[r], values[n][2 * r + 1] *= keep[r];
      }
    }
  }

  // Attends to kPartKeys keys from key `key0` on.
  NODEWRIGHT_DEVICE void attend(const Queries& queries, const bf16* keys, const Run& run, int key0) {
    const bf16* const part_values = keys + kPageKeys * kStride;
    const int lane = static_cast<int>(threadIdx.x % 32), pair = lane % 4 * 2;
    float scores[kPartKeys / 16][1][2][4] = {};
    multiply_rows<kSteps>(
        scores, [&queries](uint32_t(&left)[4], int step) { queries.operand(left, step); },
        [&](int n, int step) {
          return keys + (n * 16 + lane / 16 * 8 + lane % 8) * kStride + step * 16 + lane / 8 % 2 * 8;
        });
    if constexpr (kScoreCap != 0) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < kPartKeys / 8; ++n) {
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int i = 0; i < 4; ++i) scores[n / 2][0][n % 2][i] = capped_by<kScoreCap>(scores[n / 2][0][n % 2][i]);
      }
    }
    if (!run.whole || run.window > 0 || key0 + kPartKeys - 1 > run.warp_first) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < kPartKeys / 8; ++n) {
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int i = 0; i < 4; ++i) {
          const int key = key0 + n * 8 + pair + i % 2, at = run.position[i / 2];
          if (!run.holds[i / 2] || key > at || (run.window > 0 && key <= at - run.window))
            scores[n / 2][0][n % 2][i] = -INFINITY;
        }
      }
    }
    float base[2];
    rescale(scores, base);
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int k = 0; k < kPartKeys / 16; ++k) {
      uint32_t p[4];
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i) {
        const int r = i % 2;
        const float low = power_of_two(scores[k][0][i / 2][2 * r] - base[r]);
        const float high = power_of_two(scores[k][0][i / 2][2 * r + 1] - base[r]);
        sum[r] += low + high;
        p[i] = round_pair(low, high);
      }
      multiply_columns(values, p, [&](int n) {
        return part_values + (k * 16 + lane / 8 % 2 * 8 + lane % 8) * kStride + n * 16 + lane / 16 * 8;
      });
    }
  }

  NODEWRIGHT_DEVICE void store(const AttendTiles& args, const WarpRows& warp, int end, int head) const {
    const int pair = static_cast<int>(threadIdx.x % 4) * 2;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int r = 0; r < 2; ++r) {
      const float total = quad_sum(sum[r]);
      if (warp.rows[r] >= end) continue;
      bf16* y = args.y.data + warp.rows[r] * args.y_stride + head * kHeadDim;
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < 2 * kSteps; ++n) {
        const int d = n * 8 + pair;
        if (kDim == kHeadDim || d < kHeadDim)
          *reinterpret_cast<uint32_t*>(y + d) = round_pair(values[n][2 * r] / total, values[n][2 * r + 1] / total);
      }
    }
  }
};

// Rows first .. end - 1 are of one sequence. Positions from the run's first: heads of 256 leave no register free.
NODEWRIGHT_DEVICE Run run_of(const AttendTiles& args, const WarpRows& warp, int first, int end) {
  Run run;
  run.first_position = args.positions.data[first], run.last_position = args.positions.data[end - 1];
  run.window = static_cast<int>(args.window);
  run.oldest = run.window > 0 && run.first_position >= run.window ? run.first_position - run.window + 1 : 0;
  const int own_first = warp.first > first ? warp.first : first, own_end = warp.end < end ? warp.end : end;
  run.warp_first = run.first_position + (own_first - first),
  run.warp_last = own_first < own_end ? run.first_position + (own_end - 1 - first) : -1;
  run.whole = own_first == warp.first && own_end == warp.first + 16;
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int r = 0; r < 2; ++r) {
    run.position[r] = run.first_position + warp.rows[r] - first;
    run.holds[r] = warp.rows[r] >= first && warp.rows[r] < end;
  }
  return run;
}

// The pages of a sequence that the run attends to, one after the other. `tiles`: [kHeld][keys, values][kPageKeys]
// [kStride].
NODEWRIGHT_DEVICE void attend_run(const AttendTiles& args, const Run& run, const int* table, int kv_head, bf16* tiles,
                                  const Queries& queries, RowSums& sums) {
  PageCopies copies;
  int stage = 0;
  const auto request = [&](bf16* to, int page) {
    request_page(copies, to, args, table[page], kv_head, page * kPageKeys, run.oldest, run.last_position);
  };
  request(tiles, run.oldest / kPageKeys);
  for (int page = run.oldest / kPageKeys; page * kPageKeys <= run.last_position; ++page, stage ^= kHeld - 1) {
    if (kHeld > 1 && (page + 1) * kPageKeys <= run.last_position) {
      request(tiles + (stage ^ 1) * 2 * kPageKeys * kStride, page + 1);
      copies.template wait<1>();
    } else {
      copies.template wait<0>();
    }
    __syncthreads();
    const bf16* keys = tiles + stage * 2 * kPageKeys * kStride;
    for (int part = 0; part < kPageKeys; part += kPartKeys) {
      const int key0 = page * kPageKeys + part;
      if (key0 > run.warp_last) break;
      sums.attend(queries, keys + part * kStride, run, key0);
    }
    __syncthreads();  // the next page but one overwrites this one, or the next
    if (kHeld == 1 && (page + 1) * kPageKeys <= run.last_position) request(tiles, page + 1);
  }
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

  const int warp = static_cast<int>(threadIdx.x / 32), group = static_cast<int>(threadIdx.x % 32) / 4;
  const int warp_first = first + warp * 16, warp_end = warp_first + 16 < end ? warp_first + 16 : end;
  const WarpRows mine{warp_first, warp_end, {warp_first + group, warp_first + group + 8}};
  bf16* tiles = reinterpret_cast<bf16*>(shared_memory());  // [kHeld][keys, values][kPageKeys][kStride], then q
  Queries queries;
  queries.shared = tiles + (2 * kHeld * kPageKeys + warp * 16) * kStride;
  queries.load(args, mine, end, head);
  RowSums sums;
  sums.clear();
  for (int run = first, run_end = end; run < end; run = run_end) {
    const int sequence = args.sequences.data[run];
    run_end = end;
    if (args.sequences.data[end - 1] != sequence)
      for (run_end = run + 1; args.sequences.data[run_end] == sequence;) ++run_end;
    const int* table =  // in 32 bits: heads of 256 leave no register free
        args.block_table.data + static_cast<uint32_t>(sequence) * static_cast<uint32_t>(args.table_stride);
    attend_run(args, run_of(args, mine, run, run_end), table, kv_head, tiles, queries, sums);
  }
  sums.store(args, mine, end, head);
}
