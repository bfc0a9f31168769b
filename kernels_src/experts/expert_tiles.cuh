// Jobs (group_by_expert.h) on tensor cores: a block holds a job's rows of x in shared memory, its warps stream rows of
// W past them, each tile of them past all columns, in words that are operands as they come
// (product/tiles/tile_stream.cuh). Block b has a contiguous range of all jobs' tiles, so bytes are balanced over SMs
// whatever the rows have chosen. A sum's order depends on the columns only.
//
// Constants: kExperts, kChosen, kJobRows, kTileRows, kPieceColumns, kCols, kStride, kOutputs (expert_shape.h).
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/device/output_range.cuh"
#include "kernels_src/device/tensor.cuh"
#include "kernels_src/experts/group_by_expert.h"
#include "kernels_src/product/tiles/span_product.cuh"

namespace nodewright {

constexpr int kThreadsOfBlock = static_cast<int>(kExpertTilesThreads), kWarps = kThreadsOfBlock / 32;
constexpr int kTokens = static_cast<int>(kJobRows), kTiles = kTokens / 8, kPairs = kTiles / 2;
constexpr int kRows = static_cast<int>(kTileRows);                        // of W, in a tile
constexpr int kUnits = static_cast<int>((kOutputs + kRows - 1) / kRows);  // tiles of an expert
constexpr int kPieces = static_cast<int>((kStride + kPieceColumns - 1) / kPieceColumns);
constexpr int kSpansOfPiece = static_cast<int>(kPieceColumns / 64), kSpansOfRow = static_cast<int>((kStride + 63) / 64);
constexpr int kRowBytes = static_cast<int>(kPieceColumns) * 2 + 64;  // of other banks for two rows at once
constexpr int kWordsOfSpan = kRows / 4;                              // a lane's, of W
constexpr int kSpansAhead = 12 / kWordsOfSpan;
static_assert(kTokens % 16 == 0 && (kRows == 8 || kRows == 16));

// A tile of W on its way: words of kSpansAhead spans.
struct TileWords {
  uint4 words[kSpansAhead][2][kRows / 8];
  const bf16* rows[kRows / 8];  // this lane's, g and g + 8; null: there is none

  NODEWRIGHT_DEVICE TileWords(const bf16* matrix, int first_row) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kRows / 8; ++i) {
      const int row = first_row + lane_of_warp() / 4 + 8 * i;
      rows[i] = row < kOutputs ? matrix + row * kStride + lane_of_warp() % 4 * 8 : nullptr;
    }
  }
  NODEWRIGHT_DEVICE void request(int slot, int span) {
    NODEWRIGHT_UNROLL
    for (int s = 0; s < 2; ++s) {
      const int column = span * 64 + s * 32;
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kRows / 8; ++i)
        words[slot][s][i] = rows[i] != nullptr && column + lane_of_warp() % 4 * 8 < kStride
                                ? load_once_16(rows[i] + column)
                                : uint4{0u, 0u, 0u, 0u};
    }
  }
};

// A job's rows of x on their way to shared memory, piece after piece of their columns: all at once, or into two buffers
// in turn.
struct StagedRows {
  static constexpr int kWords = static_cast<int>(kPieceColumns / 8);  // of a row
  static constexpr int kBytes = kTokens * kRowBytes;

  unsigned char* buffers;
  AsyncCopies<(kTokens * kWords + kThreadsOfBlock - 1) / kThreadsOfBlock> copies;

  NODEWRIGHT_DEVICE explicit StagedRows(unsigned char* shared) : buffers(shared) {}
  NODEWRIGHT_DEVICE unsigned char* buffer(int stage) const { return buffers + (kPieces > 1 ? stage % 2 * kBytes : 0); }

  // Zeros where there is no row or no column. x_row(pair).
  template <class Args, class XRow>
  NODEWRIGHT_DEVICE void request(const Args& args, const ExpertJob& job, int stage, XRow x_row) {
    const int first = stage % kPieces * static_cast<int>(kPieceColumns);
    NODEWRIGHT_UNROLL_BY(8)
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * kWords; i += kThreadsOfBlock) {
      const int row = i / kWords, at = i % kWords * 8;
      const bool there = row < job.count && first + at < kStride;
      const bf16* const from =
          there ? args.from.x.data + x_row(args.pairs.data[job.first + row]) * args.from.x_stride + first + at
                : args.from.x.data;
      copies.request(buffer(stage) + row * kRowBytes + at * 2, from, there);
    }
    copies.close_group();
  }
  // All requested stages but the last kLeft are there, for every thread.
  template <int kLeft>
  NODEWRIGHT_DEVICE void wait(int stage) {
    copies.template wait<kLeft>();
    __syncthreads();
    if constexpr (kCols % 8 != 0) {  // columns from kCols on are undefined
      const int last = static_cast<int>(kCols) / 8 * 8 - stage % kPieces * static_cast<int>(kPieceColumns);
      if (last >= 0 && last < kPieceColumns && threadIdx.x < kTokens)
        for (int i = kCols % 8; i < 8; ++i)
          reinterpret_cast<bf16*>(buffer(stage) + threadIdx.x * kRowBytes)[last + i] = bf16{0};
      __syncthreads();
    }
  }
};

// sums += the tile's products with the rows of x that are staged.
NODEWRIGHT_DEVICE void multiply_piece(PairSums (&sums)[kPairs], TileWords& tile, const unsigned char* shared,
                                      int piece) {
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
  const int first = piece * kSpansOfPiece, count = min(kSpansOfPiece, kSpansOfRow - first);
  NODEWRIGHT_NO_UNROLL
  for (int base = 0; base < count; base += kSpansAhead) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < kSpansAhead; ++i) {
      if (base + i >= count) break;
      const unsigned char* const x = shared + (base + i) * 128 + t * 16;
      multiply_span<kRows, kTiles, false>(
          sums, [&](int s, int row) { return tile.words[i][s][row / 8]; },
          [&](int s, int n) { return load_16(x + (n * 8 + g) * kRowBytes + s * 64); });
      tile.request(i, first + base + i + kSpansAhead);
    }
  }
}

// store(pair, row, first, second): what rows `row` and `row` + 1 of the expert's W give for that pair; row + 1 may be
// past the last.
template <class Args, class XRow, class Store>
NODEWRIGHT_DEVICE void multiply_experts(const Args& args, XRow x_row, Store store) {
  StagedRows staged(shared_memory());
  release_dependents();
  wait_for_inputs();
  const OutputRange range = block_outputs(static_cast<int64_t>(args.n_jobs.data[0]) * kUnits);
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
  for (int at = range.first; at < range.last;) {
    const ExpertJob job = args.jobs.data[at / kUnits];
    const int first_of_job = at / kUnits * kUnits, end = min(range.last, first_of_job + kUnits);
    const bf16* const matrix = args.w.weight.data + static_cast<int64_t>(job.expert) * kOutputs * kStride;
    const int stages = kPieces > 1 ? (end - at + kWarps - 1) / kWarps * kPieces : 1;
    __syncthreads();  // everybody has read what was staged before
    staged.request(args, job, 0, x_row);
    for (int unit = at, stage = 0; unit < end; unit += kWarps) {
      const int mine = unit + warp_of_block();
      const int row = mine < end ? (mine - first_of_job) * kRows : static_cast<int>(kOutputs);
      TileWords tile(matrix, row);
      PairSums sums[kPairs] = {};
      for (int piece = 0; piece < kPieces; ++piece, ++stage) {
        NODEWRIGHT_UNROLL
        for (int i = 0; i < kSpansAhead; ++i) tile.request(i, piece * kSpansOfPiece + i);
        if (kPieces > 1) {
          if (stage > 0) __syncthreads();  // everybody has read the piece before
          if (stage + 1 < stages)
            staged.request(args, job, stage + 1, x_row);
          else
            staged.copies.close_group();
          staged.template wait<1>(stage);
        } else if (unit == at) {
          staged.template wait<0>(0);
        }
        if (mine < end) multiply_piece(sums, tile, staged.buffer(stage), piece);
      }
      if (mine >= end) continue;
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < kTiles; ++n) {
        const int m = n * 8 + g;
        if (m >= job.count) continue;
        const int pair = args.pairs.data[job.first + m], k = n % 2 * 2;
        const PairSums& of = sums[n / 2];
        if constexpr (kRows == 8) {
          if (row + 2 * t < kOutputs)
            store(pair, row + 2 * t, of.upper[k] + of.lower[k], of.upper[k + 1] + of.lower[k + 1]);
        } else {
          if (row + 2 * t < kOutputs) store(pair, row + 2 * t, of.upper[k], of.upper[k + 1]);
          if (row + 8 + 2 * t < kOutputs) store(pair, row + 8 + 2 * t, of.lower[k], of.lower[k + 1]);
        }
      }
    }
    at = end;
  }
}

}  // namespace nodewright
