// How a matrix times a few rows is laid over the GPU: threads own columns, blocks own contiguous ranges of outputs.
// Host only; the kernels of product/rows/matvec.cuh are compiled for its constants.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels_src/launch_shape.h"
#include "kernels_src/product/format/weight_layout.h"
#include "kernels_src/product/rows/packed_slice.h"

namespace nodewright {

// What a measurement has found better; 0: what MatvecShape says itself.
struct MatvecTuning {
  int64_t threads = 0;        // of a block: a multiple of 32 up to 384
  int64_t batch = 0;          // rows of W in flight: 1, 2, 4, 8 or 16; at least a unit are
  int64_t blocks_per_sm = 0;  // 1 to 8
  bool operator==(const MatvecTuning&) const = default;
};

// y[rows, outputs] = x[rows, cols] . W[outputs, cols]^T, W with `stride` elements a row (a multiple of 8, of FP8 16, of
// int4 128).
struct MatvecShape {
  int64_t rows = 1;     // rows of the bucket
  int64_t cols = 0;     // elements of x that count
  int64_t stride = 0;   // elements between two rows of W: cols rounded up to 8
  int64_t outputs = 0;  // rows of W
  int64_t unit = 1;     // W rows that must stay in one block (2: a gate row and its up row)
  bool normed = false;  // x is normed first, with vectors of its own in registers
  MatvecTuning tuning = {};
  int64_t of_block = 0;  // rows of W that a block has at most; 0: any number
  WeightLayout weights = {};

  // Rows of x that one block multiplies, weights read once for all of them; more rows go to grid.y. A thread's slices
  // of x are held in registers: at most 8 chunks of 8 floats, and half of a thread's registers.
  constexpr int64_t tile() const {
    const bool many_scales = weights.has_nibbles() && weights.group < 64;
    const int64_t most = registers_of(threads()) < 128 || many_scales ? 4 : 8;
    for (int64_t t : {8, 4, 2})
      if (rows % t == 0 && t * chunks_per_thread() <= most) return t;
    return 1;
  }

  // Threads of a block: a word of W each and turn, the same for every number of rows, so that a row has the same sums.
  // Fewest idle lanes, then most rows of W in flight, then the largest block; of long rows most in flight first. On one
  // H100 (2026-11-26, one row, 1024 keys) a layer of Qwen3-32B takes 323 us so and 409 us with 160 threads.
  constexpr int64_t threads() const {
    if (tuning.threads > 0) return tuning.threads;
    const int64_t words = row_bytes() / 16;
    // Few outputs end soon: blocks as small as the next kernel's leave room for these (docs/products.md).
    if (!normed && outputs <= 1024 && words > 128 && words <= 384) return 128;
    if (words > 128 && words < 160) return 192;  // bound to 168 registers, 160 threads to 128: a norm spills there
    if (words <= 256) return std::max<int64_t>(32, (words + 31) / 32 * 32);
    const bool is_long = words > 1024;
    if (weights.is_quantized() && words > 640) return kAloneOnSm;
    int64_t best = kAloneOnSm;
    std::pair<int64_t, int64_t> least{INT64_MAX, INT64_MAX};
    for (const int64_t t : {128, 160, 192, 224, 256, 320}) {
      // Few outputs of short rows end soon anyway, and two such blocks keep out the kernel that comes next: its blocks
      // then crowd on the SMs that end first (Qwen2.5-0.5B's head after down: 129 us in place of 94).
      if (t == 320 && words < 640 && !normed && !weights.is_quantized()) continue;
      int64_t n = 16;
      while (n >= unit && (n * row_bytes() > most_in_flight(t) || !fits_one_row(n, t))) n /= 2;
      if (n < unit) continue;
      const int64_t idle = words_of(t) * t - words;
      const auto cost = is_long ? std::pair{-n, idle} : std::pair{idle, -n};
      if (cost <= least) least = cost, best = t;
    }
    return best;
  }

  // Words of 16 bytes that a thread has of a row of W, and chunks of 8 columns in these.
  constexpr int64_t words_of(int64_t of_threads) const { return (row_bytes() / 16 + of_threads - 1) / of_threads; }
  constexpr int64_t chunks_of(int64_t of_threads) const { return words_of(of_threads) * weights.word_columns() / 8; }
  constexpr int64_t row_bytes() const { return weights.row_bytes(stride); }
  constexpr int64_t chunks_per_thread() const { return chunks_of(threads()); }

  // Threads of a block that fills an SM, for rows that fit no smaller one.
  static constexpr int64_t kAloneOnSm = 384;

  // Registers that the launch bounds leave a thread (device/dialect.cuh), of the four parts of an SM.
  static constexpr int64_t registers_of(int64_t of_threads) {
    return of_threads == 192 || of_threads == kAloneOnSm ? 168 : of_threads == 320 ? 96 : 128;
  }

  // Whether a thread has registers for `n` rows of W in flight beside one row of x, that row's gains and what a packed
  // chunk is widened to. What is left is for addresses and the norm; NVRTC 13.0 spills beyond it, for sm_90
  // (KernelRules.HoldForEveryWidth of tests/kernels/budgets_test.cpp).
  constexpr bool fits_one_row(int64_t n, int64_t of_threads) const {
    const int64_t c = chunks_of(of_threads);
    const bool is_wide = weights.code == WeightCode::q8_offset && of_threads == kAloneOnSm;
    // x comes in fp32 with its gains, and then stays in fp16 beside what is multiplied.
    if (weights.is_quantized())
      return 12 * c * normed + in_flight(c, n) + (c * of_threads * 8 != stride ? 16 : 0) <=
                 registers_of(of_threads) - 16 &&
             4 * c + in_flight(c, n) + n <= registers_of(of_threads) -
                                                (weights.in_blocks                             ? 40
                                                 : weights.has_nibbles() && weights.group < 64 ? 60
                                                                                               : 36) -
                                                (rows == 1 ? 0
                                                 : is_wide ? 48
                                                           : 12);
    const bool packed = !normed && keeps_packed(c), ragged = c * of_threads * 8 != stride;
    const int64_t x = packed ? 4 * c + 8 : 8 * c, gains = normed ? 4 * c : 0;
    const int64_t bound = registers_of(of_threads);
    const int64_t most = bound == 96 ? 64 : bound == 168 ? 145 : 100;
    return x + gains + in_flight(c, n) + n <= most - (ragged && !packed ? 4 : 0);
  }

  // Registers of n rows of W, of c chunks, and of their scales.
  constexpr int64_t in_flight(int64_t c, int64_t n) const {
    if (weights.is_grouped()) return c * 8 / weights.word_columns() * (4 + weights.group_words_of_word()) * n;
    return weights.element_bits() / 4 * c * n + (weights.in_blocks ? (c > 5 ? 3 : 2) * weights.unit * c / 2 : 0);
  }

  // The same of several rows of x. Fewer where a thread may lack a column, and where a norm holds several rows of
  // several chunks.
  constexpr bool fits_rows(int64_t n) const {
    const int64_t chunks = chunks_per_thread(), t = threads();
    if (weights.is_quantized()) {
      const int64_t words = in_flight(chunks, n);
      return 8 * tile() * chunks + 4 * chunks * normed + words <= registers_of(t) - 32 &&
             4 * tile() * chunks + words + n * tile() + 8 * tile() <= registers_of(t) - 40;
    }
    const bool ragged = chunks * t * 8 != stride;
    const bool wide = normed && chunks > 1 && t != 192;
    const int64_t most = registers_of(t) < 128 ? 56 : ragged || wide ? 88 : 112;
    return 8 * tile() * chunks + in_flight(chunks, n) + n * tile() <= most;
  }

  // Bytes of W that a block may have requested.
  static constexpr int64_t most_in_flight(int64_t of_threads) {
    return int64_t{of_threads == kAloneOnSm ? 128 : 64} << 10;
  }

  // Rows of W whose loads are in flight at once: few enough registers, and 32 sums to reduce.
  constexpr int64_t batch() const {
    if (tuning.batch > 0) return std::max(tuning.batch, unit);
    int64_t n = weights.is_quantized() ? 8 : 16;
    while (n > unit && (n * row_bytes() > most_in_flight(threads()) || n * tile() > 32 ||
                        !(tile() == 1 ? fits_one_row(n, threads()) : fits_rows(n))))
      n /= 2;
    return n;
  }

  // Rows of W whose partial sums wait in shared memory (16 KiB at most) for the sum over warps. Not many more than a
  // block has: what is left is L1, through which its weights come (docs/attention.md). A power of two, 16 at least:
  // kernels of other sizes share their code.
  constexpr int64_t segment() const {
    const int64_t fits = 4096 / (tile() * (threads() / 32)) / batch() * batch();
    int64_t needed = of_block > 0 ? 16 : fits;
    while (needed < of_block) needed *= 2;
    return std::max<int64_t>(batch(), std::min(needed, fits));
  }
  constexpr void fit_segment(int64_t sm_count) {
    const int64_t units = outputs / unit, blocks = launch_shape(sm_count).grid[0];
    of_block = (units + blocks - 1) / blocks * unit;
  }

  // More rows than one share their code: fewer kernels to compile.
  constexpr ShapeConstants<7> constants() const {
    return {{{"kSingleRow", rows == 1},
             {"kTile", tile()},
             {"kCols", cols},
             {"kStride", stride},
             {"kThreads", threads()},
             {"kBatch", batch()},
             {"kSegment", segment()}}};
  }

  constexpr unsigned shared_bytes() const {
    return static_cast<unsigned>(4 * (segment() * tile() * (threads() / 32) + tile() * (threads() / 32)));
  }

  // Two blocks an SM: on one H200 (2026-11-20, Llama-3.2-1B shapes, batch 1, 1024 keys, programmatic edges) a step
  // takes 0.878 ms so and 0.932 ms with one.
  static constexpr int64_t kBlocksPerSm = 2, kMostBlocksPerSm = 8;

  constexpr LaunchShape launch_shape(int64_t sm_count) const {
    // Small blocks of quantized rows have few bytes in flight: more of them, where each has several batches of rows.
    const int64_t small = std::min({kMostBlocksPerSm, 512 / threads(), outputs / (2 * batch() * sm_count)});
    const int64_t untuned = threads() == kAloneOnSm  ? 1
                            : weights.is_quantized() ? std::max(small, kBlocksPerSm)
                                                     : kBlocksPerSm;
    const int64_t per_sm = tuning.blocks_per_sm > 0 ? tuning.blocks_per_sm : untuned;
    const auto blocks = static_cast<unsigned>(std::min(outputs / unit, per_sm * sm_count));
    return {
        {blocks, static_cast<unsigned>(rows / tile()), 1}, {static_cast<unsigned>(threads()), 1, 1}, shared_bytes()};
  }
};

}  // namespace nodewright
