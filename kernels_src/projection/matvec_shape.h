// How a matrix times a few rows is laid over the GPU: threads own columns, blocks own contiguous ranges of outputs.
// Host only; the kernels of projection/matvec.cuh are compiled for its constants.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels_src/launch_shape.h"

namespace nodewright {

// What a measurement has found better; 0: what MatvecShape says itself.
struct MatvecTuning {
  int64_t threads = 0;        // of a block: a multiple of 32 up to 256
  int64_t batch = 0;          // rows of W in flight: 1, 2, 4, 8 or 16; at least a unit are
  int64_t blocks_per_sm = 0;  // 1 to 4
  bool operator==(const MatvecTuning&) const = default;
};

// y[rows, outputs] = x[rows, cols] . W[outputs, cols]^T, W with `stride` bf16 elements a row (a multiple of 8).
struct MatvecShape {
  int64_t rows = 1;     // rows of the bucket
  int64_t cols = 0;     // elements of x that count
  int64_t stride = 0;   // elements between two rows of W: cols rounded up to 8
  int64_t outputs = 0;  // rows of W
  int64_t unit = 1;     // W rows that must stay in one block (2: a gate row and its up row)
  bool normed = false;  // x is normed first, with vectors of its own in registers
  MatvecTuning tuning = {};
  int64_t of_block = 0;  // rows of W that a block has at most; 0: any number

  // Rows of x that one block multiplies, weights read once for all of them; more rows go to grid.y. A thread's slices
  // of x are held in registers: at most 8 chunks of 8 floats.
  constexpr int64_t tile() const {
    for (int64_t t : {8, 4, 2})
      if (rows % t == 0 && t * chunks_per_thread() <= 8) return t;
    return 1;
  }

  // Threads of a block: 8 columns each and turn. At most 256, so that at 128 registers two blocks fit an SM and the
  // next kernel's weights are requested while this one ends. Fewest idle lanes, then the largest block.
  constexpr int64_t threads() const {
    if (tuning.threads > 0) return tuning.threads;
    const int64_t chunks = stride / 8;
    if (chunks > 128 && chunks < 160) return 192;  // bound to 168 registers, 160 threads to 136: a norm spills there
    if (chunks <= 256) return std::max<int64_t>(32, (chunks + 31) / 32 * 32);
    int64_t best = 256, best_idle = INT64_MAX;
    for (int64_t t = 128; t <= 256; t += 32) {
      const int64_t idle = (chunks + t - 1) / t * t - chunks;
      if (idle <= best_idle) best = t, best_idle = idle;
    }
    return best;
  }

  constexpr int64_t chunks_per_thread() const { return (stride / 8 + threads() - 1) / threads(); }

  // Registers a thread may spend on its slice of x, weights in flight and sums, of the 128 to 168 that the launch
  // bounds (device/dialect.cuh) leave it. Fewer where a thread may lack a column, as each load is then a branch, and
  // where a norm holds several rows of several chunks: NVRTC 13.0 spills there with 112, for sm_80 and sm_90
  // (tests/kernels/budgets_test.cpp).
  constexpr int64_t registers() const {
    const bool ragged = chunks_per_thread() * threads() * 8 != stride;
    const bool wide = normed && tile() > 1 && chunks_per_thread() > 1 && threads() != 192;
    return ragged || wide ? 88 : 112;
  }

  // Rows of W whose loads are in flight at once: at most 16 loads of 16 bytes a thread, 64 KiB a block, 32 sums to
  // reduce, and few enough registers.
  constexpr int64_t batch() const {
    if (tuning.batch > 0) return std::max(tuning.batch, unit);
    const int64_t chunks = chunks_per_thread();
    int64_t n = 16;
    while (n > unit && (n * chunks > 16 || n * tile() > 32 || n * threads() > 4096 ||
                        8 * tile() * chunks + 4 * chunks * n + n * tile() > registers()))
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
  static constexpr int64_t kBlocksPerSm = 2, kMostBlocksPerSm = 4;

  constexpr LaunchShape launch_shape(int64_t sm_count) const {
    const int64_t per_sm = tuning.blocks_per_sm > 0 ? tuning.blocks_per_sm : kBlocksPerSm;
    const auto blocks = static_cast<unsigned>(std::min(outputs / unit, per_sm * sm_count));
    return {
        {blocks, static_cast<unsigned>(rows / tile()), 1}, {static_cast<unsigned>(threads()), 1, 1}, shared_bytes()};
  }
};

}  // namespace nodewright
