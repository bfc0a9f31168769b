// Jobs (group_by_expert.h) on tensor cores: a block holds a job's rows of x in shared memory, its warps stream rows of
// W past them, each tile of them past all columns, in words that are operands as they come
// (product/tiles/tile_stream.cuh). Block b has a contiguous range of all jobs' tiles, so bytes are balanced over SMs
// whatever the rows have chosen. A sum's order depends on the columns only.
//
// Constants: kExperts, kChosen, kJobRows, kTileRows, kPieceColumns, kCols, kStride, kOutputs (expert_shape.h); those of
// product/format/weights.cuh.
#pragma once

#include "kernels_src/device/output_range.cuh"
#include "kernels_src/experts/expert_tile_words.cuh"
#include "kernels_src/experts/group_by_expert.h"

namespace nodewright {

constexpr int kThreadsOfBlock = static_cast<int>(kExpertTilesThreads), kWarps = kThreadsOfBlock / 32;
constexpr int kUnits = static_cast<int>((kOutputs + kRows - 1) / kRows);  // tiles of an expert
constexpr int kPieces = static_cast<int>((kStride + kPieceColumns - 1) / kPieceColumns);
constexpr int kSlotsOfPiece = static_cast<int>(kPieceColumns / kSlotColumns),
              kSlotsOfRow = static_cast<int>((kStride + kSlotColumns - 1) / kSlotColumns);
static_assert(kPieces == 1 || kPieceColumns % kSlotColumns == 0);

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
  const int first = piece * kSlotsOfPiece, count = min(kSlotsOfPiece, kSlotsOfRow - first);
  NODEWRIGHT_NO_UNROLL
  for (int base = 0; base < count; base += kSlotsAhead) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < kSlotsAhead; ++i) {
      if (base + i >= count) break;
      tile.multiply(sums, i, first + base + i, shared + (base + i) * kSlotColumns * 2);
      tile.request(i, first + base + i + kSlotsAhead);
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
    const int64_t expert = static_cast<int64_t>(job.expert) * kOutputs;
    const int stages = kPieces > 1 ? (end - at + kWarps - 1) / kWarps * kPieces : 1;
    __syncthreads();  // everybody has read what was staged before
    staged.request(args, job, 0, x_row);
    for (int unit = at, stage = 0; unit < end; unit += kWarps) {
      const int mine = unit + warp_of_block();
      const int row = mine < end ? (mine - first_of_job) * kRows : static_cast<int>(kOutputs);
      TileWords tile(args.w, expert, row);
      PairSums sums[kPairs] = {};
      for (int piece = 0; piece < kPieces; ++piece, ++stage) {
        NODEWRIGHT_UNROLL
        for (int i = 0; i < kSlotsAhead; ++i) tile.request(i, piece * kSlotsOfPiece + i);
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
        const auto store_scaled = [&](int half, float first, float second) {
          const int output = row + 8 * half + 2 * t;
          if constexpr (kScaledRows) first *= tile.of_rows[half][0], second *= tile.of_rows[half][1];
          if (output < kOutputs) store(pair, output, first, second);
        };
        if constexpr (kRows == 8) {
          store_scaled(0, of.upper[k] + of.lower[k], of.upper[k + 1] + of.lower[k + 1]);
        } else {
          store_scaled(0, of.upper[k], of.upper[k + 1]);
          store_scaled(1, of.lower[k], of.lower[k + 1]);
        }
      }
    }
    at = end;
  }
}

}  // namespace nodewright
