// The rows of W that a thread has in flight: its words of each, and their scales.
//
// Thread t owns the columns of the words i * kThreads + t, i < kWords, of every row, 16 bytes each, in chunks of 8
// columns. Constants: those of product/rows/matvec.cuh.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/device/output_range.cuh"
#include "kernels_src/product/format/weights.cuh"

namespace nodewright {

constexpr int kWarps = static_cast<int>(kThreads / 32);
constexpr int kChunksOfWord = Weights::kChunksOfWord;
constexpr int kWords = static_cast<int>((kStride / (8 * kChunksOfWord) + kThreads - 1) / kThreads);
constexpr int kChunks = kWords * kChunksOfWord;
constexpr int64_t kRowElements = kStride / Weights::kColumnsOfElement;  // as W's row is stored
// Whether codes are multiplied as product/rows/half_slice.cuh does.
#ifdef __CUDACC_RTC__
constexpr bool kDiagonal = kFormat != 0;
#else
constexpr bool kDiagonal = false;
#endif
// Rows of W that are multiplied at once: those past the block's last cost nothing. Converting makes each long.
constexpr int kRowsAtOnce = static_cast<int>(kDiagonal && kBatch > 8 ? 2 : kFormat != 0 && kBatch > 4 ? 4 : kBatch);
constexpr int kSums = static_cast<int>(kBatch * kTile);  // sums a batch ends in; a power of two, at most 32
// Words are loaded into the registers of those multiplied before, not ahead of the multiplication: where there is one
// row of x, and rows of W are not so short that the loads come too late (docs/products.md).
constexpr bool kLoadsAfter = kTile == 1 && kStride > 1024;
static_assert(kSums <= 32 && (kSums & (kSums - 1)) == 0);

// First element of this thread's word i, and of its chunk c.
NODEWRIGHT_DEVICE int word_column(int i) {
  return (i * static_cast<int>(kThreads) + static_cast<int>(threadIdx.x)) * (8 * kChunksOfWord);
}
NODEWRIGHT_DEVICE int chunk_column(int c) { return column_of_chunk(word_column(c / kChunksOfWord), c % kChunksOfWord); }

// The scales of this thread's words where blocks of columns have some: of the groups of rows at hand. Those of the
// next are asked for early and loaded when they are reached.
struct WordScales {
  static constexpr int kGroups = kScaledBlocks ? kUnitOfScales : 1;

  const float* of_matrix;
  int next_row;  // the first of the next groups
  float now[kGroups][kWords];

  NODEWRIGHT_DEVICE const float* place(int row, int i) const {
    return of_matrix + first_scale<kStride>(row) + word_column(i) / static_cast<int>(WeightLayout::kScaleBlock);
  }
  // Also of a word after the row's last in the same block: the sum of four lanes may lie in any of them.
  NODEWRIGHT_DEVICE static bool has_block(int i) {
    constexpr int kBlock = static_cast<int>(WeightLayout::kScaleBlock);
    return word_column(i) / kBlock * kBlock < kStride;
  }
  NODEWRIGHT_DEVICE float load_counted(int row, int i, OutputRange range) const {
    return row < range.last && has_block(i) ? *place(row, i) : 0.0f;
  }
  NODEWRIGHT_DEVICE void load_groups(int row, OutputRange range) {
    next_row = row / kRowsOfScales * kRowsOfScales + kRowsOfScales;
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kGroups; ++u) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kWords; ++i) {
        now[u][i] = load_counted(row + u, i, range);
        if (next_row < range.last && has_block(i)) prefetch_line(place(next_row + u, i));
      }
    }
  }
  NODEWRIGHT_DEVICE void request(const WeightIn& w, OutputRange range) {
    of_matrix = scales_of<kStride>(w);
    load_groups(range.first, range);
  }
};
static_assert(!kScaledBlocks || kBatch <= WeightLayout::kScaleBlock);

// What this thread's words in the rows in flight have of groups of a row's columns.
constexpr int kGroupsOfWord = Weights::kGroupsOfWord;
struct GroupWords {
  uint32_t of[kHasGroups ? kLayout.group_words_of_word() : 1];
};
constexpr int kRowGroupBytes = kGroupStride<kStride> * 4;

// The weight rows in flight: [kBatch][kWords] loads a thread.
struct WeightBatch {
  uint4 w[kBatch][kWords];
  WordScales scales;
  GroupWords groups[kHasGroups ? kBatch : 1][kHasGroups ? kWords : 1];
  const unsigned char* next_groups;  // of the row after these, this thread's first
};

// Whether every thread has all its words.
constexpr bool kAllWords = kChunks * kThreads * 8 == kStride;
// Word i of the row at `row` (this thread's first element of it), if the row counts.
NODEWRIGHT_DEVICE const Stored* word_of(const Stored* row, int i) {
  return row + i * kThreads * (16 / Weights::kElementBytes);
}
NODEWRIGHT_DEVICE bool has_word(bool counts, int i) { return counts && (kAllWords || word_column(i) < kStride); }
NODEWRIGHT_DEVICE uint4 load_weight(const Stored* row, bool counts, int i) {
  return has_word(counts, i) ? load_once_16(word_of(row, i)) : uint4{0u, 0u, 0u, 0u};
}
// The same once `word` has been multiplied, into its registers. The word of a row that does not count stays; nobody
// reads its sum.
NODEWRIGHT_DEVICE void reload_weight(uint4& word, const Stored* row, bool counts, int i) {
  load_once_16_where(has_word(counts, i), word_of(row, i), word);
}

// This thread's first element of row `row`.
NODEWRIGHT_DEVICE const Stored* row_of(const Stored* weight, int row) {
  return weight + row * kRowElements + word_column(0) / Weights::kColumnsOfElement;
}
// The groups of row r after `row`, this thread's first of these, if it counts.
NODEWRIGHT_DEVICE void load_groups(WeightBatch& batch, const unsigned char* row, int r, bool counts, int i) {
  if constexpr (kHasGroups) {
    constexpr int kTurn = group_byte(static_cast<int>(kThreads) * 8 * kChunksOfWord);
    if (has_word(counts, i))
      load_group_words<Weights::kBytesOfWord>(batch.groups[r][i].of, row + r * kRowGroupBytes + i * kTurn);
  }
}

NODEWRIGHT_DEVICE void request_first_batch(WeightBatch& batch, const Stored* weight, OutputRange range) {
  const Stored* row = row_of(weight, range.first);
  NODEWRIGHT_UNROLL
  for (int r = 0; r < kBatch; ++r) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kWords; ++i)
      batch.w[r][i] = load_weight(row + r * kRowElements, range.first + r < range.last, i);
  }
}
NODEWRIGHT_DEVICE void request_first_batch(WeightBatch& batch, const WeightIn& w, OutputRange range) {
  request_first_batch(batch, stored(w), range);
  if constexpr (kScaledBlocks) batch.scales.request(w, range);
  if constexpr (kHasGroups) {
    const unsigned char* const row =
        groups_of<kStride>(scales_of<kStride>(w), range.first) + group_byte(word_column(0));
    NODEWRIGHT_UNROLL
    for (int r = 0; r < kBatch; ++r) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kWords; ++i) {
        batch.groups[r][i] = {};
        load_groups(batch, row, r, range.first + r < range.last, i);
      }
    }
    batch.next_groups = row + kBatch * kRowGroupBytes;
  }
}

}  // namespace nodewright
