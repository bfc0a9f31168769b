// What attends in tiles of rows, whichever instructions multiply: which keys a tile's rows attend to, and each row's
// softmax over them. A warp has 16 rows, in the registers that mma_16x8x16 has them in.
#pragma once

#include "kernels_src/attention/attend_tiles.h"
#include "kernels_src/attention/cache_format.cuh"

namespace nodewright {

constexpr int kTileRows = static_cast<int>(attend_tiles_rows(kWarpgroups));
constexpr int kThreads = static_cast<int>(attend_tiles_threads(kWarpgroups));
constexpr int kPageKeys = static_cast<int>(kPageSize);
constexpr int kDim = static_cast<int>((kHeadDim + 15) / 16 * 16);
constexpr int kSteps = kDim / 16;  // of 16 elements of a head
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kByWarpgroups = kWarpgroups > 0;
#else
constexpr bool kByWarpgroups = false;
#endif
// Whether operands are the fp16 that FP8 becomes in registers. Warpgroups find bf16 in shared memory.
constexpr bool kHalves = kFp8Cache && !kByWarpgroups;
static_assert(kPageSize == 64, "a tile of keys is a page");

// The rows of one warp: 16, of which those before `end` count; this lane's are rows[0] and rows[1].
struct WarpRows {
  int first, end;
  int rows[2];
};
NODEWRIGHT_DEVICE WarpRows rows_of_warp(int first, int end) {
  const int group = static_cast<int>(threadIdx.x % 32) / 4;
  return {first, first + 16 < end ? first + 16 : end, {first + group, first + group + 8}};
}

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

NODEWRIGHT_DEVICE int oldest_key(int position, int window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// Rows first .. end - 1 are of one sequence. Positions from the run's first: heads of 256 leave no register free.
NODEWRIGHT_DEVICE Run run_of(const AttendTiles& args, const WarpRows& warp, int first, int end) {
  Run run;
  run.first_position = args.positions.data[first], run.last_position = args.positions.data[end - 1];
  run.window = static_cast<int>(args.window);
  run.oldest = oldest_key(run.first_position, run.window);
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

// Calls attend(first, end, table) for the rows first .. end - 1 of each sequence in the tile.
template <class Attend>
NODEWRIGHT_DEVICE void for_each_run(const AttendTiles& args, int first, int end, const Attend& attend) {
  for (int run = first, run_end = end; run < end; run = run_end) {
    const int sequence = args.sequences.data[run];
    run_end = end;
    if (args.sequences.data[end - 1] != sequence)
      for (run_end = run + 1; args.sequences.data[run_end] == sequence;) ++run_end;
    // In 32 bits: heads of 256 leave no register free.
    attend(run, run_end,
           args.block_table.data + static_cast<uint32_t>(sequence) * static_cast<uint32_t>(args.table_stride));
  }
}

// Elements d and d + 1 of a query head of `row`, scaled, as an operand; zeros beyond the rows and the head.
NODEWRIGHT_DEVICE uint32_t query_pair(const AttendTiles& args, int row, int end, int head, int d) {
  if (row >= end || (kDim != kHeadDim && d >= kHeadDim)) return 0;
  const float* from = args.q.data + (static_cast<int64_t>(row) * kHeads + head) * kHeadDim + d;
  return operand_pair<kHalves>(from[0] * args.scale, from[1] * args.scale);
}

// Caps the scores of 8 N keys from `key0` on, and those of keys that this lane's rows do not attend to are -infinity.
template <int N>
NODEWRIGHT_DEVICE void mask_scores(float (&scores)[N][4], const Run& run, int key0) {
  if constexpr (kScoreCap != 0) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < N; ++n) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i) scores[n][i] = capped_by<kScoreCap>(scores[n][i]);
    }
  }
  if (run.whole && key0 + 8 * N - 1 <= run.warp_first && (run.window == 0 || key0 > run.warp_last - run.window)) return;
  const int pair = static_cast<int>(threadIdx.x % 4) * 2;
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int n = 0; n < N; ++n) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < 4; ++i) {
      const int key = key0 + n * 8 + pair + i % 2, at = run.position[i / 2];
      if (!run.holds[i / 2] || key > at || (run.window > 0 && key <= at - run.window)) scores[n][i] = -INFINITY;
    }
  }
}

// What this lane's rows have of the keys so far: values [n][i] as mma_16x8x16 leaves them, columns as element_of.
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

  // The rows of a run begin without what other runs have added to them: 0 times a value that may be NaN.
  NODEWRIGHT_DEVICE void begin(const Run& run) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < 2 * kSteps; ++n) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i)
        if (run.holds[i / 2]) values[n][i] = 0.0f;
    }
  }

  // Raises the maximum of each row to that of `scores`, and gives what the rows' exponents are taken from, and what of
  // their sums and values that leaves: for rows that see none of these keys, 1.
  template <int N>
  NODEWRIGHT_DEVICE void raise(const float (&scores)[N][4], float (&base)[2], float (&keep)[2]) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int r = 0; r < 2; ++r) {
      float highest = -INFINITY;
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < N; ++n) highest = fmaxf(highest, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
      if constexpr (kHalves) highest -= kLift;
      highest = fmaxf(top[r], quad_max(highest));
      base[r] = highest == -INFINITY ? 0.0f : highest;
      keep[r] = power_of_two(top[r] - base[r]);
      top[r] = highest;
    }
  }

  NODEWRIGHT_DEVICE void rescale_values(const float (&keep)[2]) {
    if (!__any_sync(0xffffffffu, keep[0] != 1.0f || keep[1] != 1.0f)) return;  // mostly, after the first pages
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < 2 * kSteps; ++n) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i) values[n][i] *= keep[i / 2];
    }
  }

  // The rows of a run, at its end.
  NODEWRIGHT_DEVICE void store(const AttendTiles& args, const WarpRows& warp, const Run& run, int head) const {
    const int pair = static_cast<int>(threadIdx.x % 4) * 2;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int r = 0; r < 2; ++r) {
      float share = 1.0f / quad_sum(sum[r]);
      if constexpr (kFp8Cache) share *= args.value_scale;
      if (!run.holds[r]) continue;
      bf16* y = args.y.data + warp.rows[r] * args.y_stride + head * kHeadDim;
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < 2 * kSteps; ++n) {
        if constexpr (kHalves) {  // neighbours are in two sums (element_of)
          const int even = n / 2 * 2, k = 2 * r + n % 2, d = element_of(even, pair, n % 2);
          if (kDim == kHeadDim || d < kHeadDim)
            *reinterpret_cast<uint32_t*>(y + d) = round_pair(values[even][k] * share, values[even + 1][k] * share);
        } else {
          const int d = n * 8 + pair;
          if (kDim == kHeadDim || d < kHeadDim)
            *reinterpret_cast<uint32_t*>(y + d) = round_pair(values[n][2 * r] * share, values[n][2 * r + 1] * share);
        }
      }
    }
  }
};

}  // namespace nodewright
