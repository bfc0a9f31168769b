// Rows of experts' matrices streamed past one row of x: a warp has a group of rows of W at a time, whole ones or with
// kParts a part of their columns, in words that its lanes read side by side. An expert's rows are short and few, so
// warps share nothing; a dot product's order depends on the columns only. bf16 is multiplied with ordinary arithmetic,
// codes as experts/expert_halves.cuh says.
//
// Constants: kExperts, kOutputs (rows of W of an expert), kCols, kStride (W's row stride, elements); those of
// product/format/weights.cuh.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/experts/expert_rows.h"
#include "kernels_src/product/format/weights.cuh"

namespace nodewright {

constexpr int kChunksOfWord = Weights::kChunksOfWord;  // of 8 columns in 16 bytes
constexpr int kWordColumns = 8 * kChunksOfWord;
constexpr int kGroupWords = kHasGroups ? static_cast<int>(kLayout.group_words_of_word()) : 1;
constexpr int64_t kRowElements = kStride / Weights::kColumnsOfElement;  // as W's row is stored

// Rows of W, one below the other: the first of them in memory, and its number in the matrix of all experts.
struct ExpertGroup {
  const Stored* rows;
  int first;
};

// The scales of words of a group of rows: of blocks of columns those of the rows of a unit; else what the words' groups
// of columns share, of each row.
template <int kGroup>
struct ExpertScales {
  static constexpr int kRows = kScaledBlocks ? kUnitOfScales : kHasGroups ? kGroup : 1;
  alignas(16) uint32_t of[kRows][kGroupWords] = {};  // as they lie in memory
};

template <int kGroup, int kParts>
struct ExpertRows {
  static constexpr int kWords = static_cast<int>(expert_words(kStride, kWordColumns, kParts));  // of a lane, in a row
  // Words on their way, with the scales that come with them.
  static constexpr int kSlots = (!kHasGroups ? 16 : kGroupWords > 1 || kGroup > 2 ? 8 : 12) / kGroup;
  static constexpr int kAhead = kWords < kSlots ? kWords : kSlots;  // of them, on their way at once
  static constexpr int kBlocks = (kWords + kAhead - 1) / kAhead;
  static constexpr bool kExact = kBlocks * kAhead * kParts * 32 * kWordColumns == kStride;
  // Groups on their way at once: of codes several, so that they are as many bytes.
  static constexpr int kGroupsAhead = kFormat != 0 && kBlocks == 1 ? kSlots / kAhead : 1;

  uint4 words[kGroupsAhead * kAhead][kGroup];
  ExpertScales<kGroup> scales[kGroupsAhead * kAhead];  // of groups of columns, requested with the words
  float of_rows[kGroupsAhead];  // where rows have a scale: that of the row with the lane's number
  int of_blocks[kGroupsAhead];  // where blocks have: the place of the rows' first
  const float* of_matrix;       // all scales
  int part;                     // of the columns

  NODEWRIGHT_DEVICE ExpertRows(const bf16* matrix, int columns) : part(columns) {
    if constexpr (kFormat != 0) of_matrix = scales_of<kStride>(matrix, kExperts * kOutputs);
  }

  // The first column of this lane's word `word` of a row.
  NODEWRIGHT_DEVICE int column(int word) const { return ((word * kParts + part) * 32 + lane_of_warp()) * kWordColumns; }
  NODEWRIGHT_DEVICE bool has(int word) const { return kExact || column(word) < kStride; }

  NODEWRIGHT_DEVICE const Stored* word_at(const ExpertGroup& group, int r, int word) const {
    return group.rows + r * kRowElements + column(word) / Weights::kColumnsOfElement;
  }

  // Requests the i-th words of a block of the `rows` rows of a group.
  template <bool kStays>
  NODEWRIGHT_DEVICE void request(int slot, const ExpertGroup& group, int rows, int block, int i) {
    const int word = block * kAhead + i;
    const bool counts = has(word);
    NODEWRIGHT_UNROLL
    for (int r = 0; r < kGroup; ++r) {
      if constexpr (kStays)  // codes that do not count: nobody reads the sum, or x is zero
        load_once_16_where(counts && r < rows, word_at(group, r, word), words[slot][r]);
      else
        words[slot][r] = counts && r < rows ? load_once_16(word_at(group, r, word)) : uint4{0u, 0u, 0u, 0u};
    }
    request_scales(slot, group, rows, word);
  }
  // The first of `groups` groups, one at least.
  template <class GroupAt>
  NODEWRIGHT_DEVICE void start(int groups, GroupAt group_at) {
    int rows = 0;
    ExpertGroup group = group_at(0, rows);
    NODEWRIGHT_UNROLL
    for (int turn = 0; turn < kGroupsAhead; ++turn) {
      if (turn > 0) group = turn < groups ? group_at(turn, rows) : (rows = 0, group);
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kAhead; ++i) request<false>(turn * kAhead + i, group, rows, 0, i);
    }
  }

  // Groups 0 to groups - 1, which have been started. group_at(g, rows): where it is, and how many rows it has; x: what
  // multiplies (experts/expert_halves.cuh); done(g, sums) with this lane's part of the sums.
  template <class GroupAt, class X, class Done>
  NODEWRIGHT_DEVICE void run(int groups, GroupAt group_at, const X& x, Done done) {
    if (groups <= 0) return;
    int rows_ahead = 0;
    ExpertGroup ahead = group_at(0, rows_ahead);
    NODEWRIGHT_NO_UNROLL
    for (int g = 0; g < groups; g += kGroupsAhead) {
      NODEWRIGHT_UNROLL
      for (int turn = 0; turn < kGroupsAhead; ++turn) {
        if (turn > 0 && g + turn >= groups) break;
        const float of_row = of_rows[turn];
        const int of_block_rows = of_blocks[turn];
        typename X::Sums sums;
        NODEWRIGHT_NO_UNROLL
        for (int block = 0; block < kBlocks; ++block) {
          const bool last = block + 1 == kBlocks;
          if (last) {
            const int next = g + turn + kGroupsAhead;
            ahead = next < groups ? group_at(next, rows_ahead) : (rows_ahead = 0, ahead);
          }
          NODEWRIGHT_UNROLL
          for (int i = 0; i < kAhead; ++i) {
            const int slot = turn * kAhead + i;
            if constexpr (kScaledBlocks) load_scales(scales[slot], of_block_rows, block * kAhead + i);
            x.multiply(sums, *this, words[slot], scales[slot], block * kAhead + i);
            request<kFormat != 0>(slot, ahead, rows_ahead, last ? 0 : block + 1, i);
          }
        }
        float(&ended)[kGroup] = x.ended(sums);
        if constexpr (kScaledRows) {
          NODEWRIGHT_UNROLL
          for (int r = 0; r < kGroup; ++r) ended[r] *= __shfl_sync(0xffffffffu, of_row, r);
        }
        done(g + turn, ended);
      }
    }
  }

 private:
  // Whether a row has columns in the block of a word, which may be of another lane: the sum of four lanes may lie in
  // any of them.
  NODEWRIGHT_DEVICE bool has_block(int word) const {
    constexpr int kBlock = static_cast<int>(WeightLayout::kScaleBlock);
    return kExact || column(word) / kBlock * kBlock < kStride;
  }
  NODEWRIGHT_DEVICE void load_scales(ExpertScales<kGroup>& to, int first, int word) const {
    constexpr int kBlock = static_cast<int>(WeightLayout::kScaleBlock);
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kUnitOfScales; ++u)
      to.of[u][0] = has_block(word)
                        ? float_to_bits(of_matrix[first + u * static_cast<int>(WeightLayout::scale_stride(kStride)) +
                                                  column(word) / kBlock])
                        : 0u;
  }
  NODEWRIGHT_DEVICE void request_scales(int slot, const ExpertGroup& group, int rows, int word) {
    if constexpr (kScaledRows) {
      if (word == 0) of_rows[slot / kAhead] = lane_of_warp() < rows ? of_matrix[group.first + lane_of_warp()] : 0.0f;
    }
    if constexpr (kScaledBlocks) {
      constexpr int kFloats = kUnitOfScales * static_cast<int>(WeightLayout::scale_stride(kStride));
      if (word == 0) {
        of_blocks[slot / kAhead] = first_scale<kStride>(group.first);
        if (rows > 0 && lane_of_warp() * 32 < kFloats)
          prefetch_line(of_matrix + of_blocks[slot / kAhead] + lane_of_warp() * 32);
      }
    }
    if constexpr (kHasGroups) {
      const unsigned char* const from = groups_of<kStride>(of_matrix, group.first) + group_byte(column(word));
      NODEWRIGHT_UNROLL
      for (int r = 0; r < kGroup; ++r)
        if (has(word) && r < rows)
          load_group_words<Weights::kBytesOfWord>(scales[slot].of[r], from + r * kGroupStride<kStride> * 4);
    }
  }
};

// Eight elements of a bf16 row of kCols that count, from `column` on.
NODEWRIGHT_DEVICE void load_counted_8(const bf16* row, int column, float (&x)[8]) {
  unpack_8(load_16(row + column), x);
  if constexpr (kCols % 8 != 0) {  // columns from kCols on are undefined
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i)
      if (column + i >= kCols) x[i] = 0.0f;
  }
}

// The expert of a row from n_live on is undefined.
NODEWRIGHT_DEVICE int64_t valid_expert(int expert) {
  return static_cast<uint32_t>(expert) < static_cast<uint32_t>(kExperts) ? expert : 0;
}

}  // namespace nodewright
