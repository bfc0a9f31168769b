// A weight matrix streamed once past a few rows of x. Included by the kernels that end in different epilogues.
//
// Thread t owns the columns of the words i * kThreads + t, i < kWords, of every row: its slice of x stays in registers,
// in chunks of 8 columns, a weight row is one coalesced load of 16 bytes a thread and word, and no x passes through
// shared memory.
// Block b owns a contiguous range of outputs, so bytes are balanced over SMs to within one row. Sums go lane -> warp
// (butterfly) -> shared memory -> block, in an order that depends on W's shape only: a row's bits do not depend on the
// bucket.
//
// Dependents are released as soon as a block's first weights are requested: released after the wait, a 1B step took
// 0.955 ms instead of 0.890 on one H200 (2026-11-20).
//
// Constants: kTile rows of x, kCols, kStride (W's row stride, elements), kThreads, kBatch (W rows in flight), kSegment,
// kBias 1 if outputs have one; those of product/format/weights.cuh.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/device/output_range.cuh"
#include "kernels_src/product/format/weights.cuh"
#include "kernels_src/product/rows/packed_slice.h"

namespace nodewright {

constexpr int kWarps = static_cast<int>(kThreads / 32);
constexpr int kChunksOfWord = Weights::kChunksOfWord;
constexpr int kWords = static_cast<int>((kStride / (8 * kChunksOfWord) + kThreads - 1) / kThreads);
constexpr int kChunks = kWords * kChunksOfWord;
// Rows of W that are multiplied at once: those past the block's last cost nothing. Converting makes each long.
constexpr int kRowsAtOnce = static_cast<int>(kFormat != 0 && kBatch > 4 ? 4 : kBatch);
constexpr int kSums = static_cast<int>(kBatch * kTile);  // sums a batch ends in; a power of two, at most 32
// Words are loaded into the registers of those multiplied before, not ahead of the multiplication: where there is one
// row of x, and rows of W are not so short that the loads come too late (docs/products.md).
constexpr bool kLoadsAfter = kTile == 1 && kStride > 1024;
static_assert(kSums <= 32 && (kSums & (kSums - 1)) == 0);

// First element of this thread's word i, and of its chunk c.
NODEWRIGHT_DEVICE int word_column(int i) {
  return (i * static_cast<int>(kThreads) + static_cast<int>(threadIdx.x)) * (8 * kChunksOfWord);
}
NODEWRIGHT_DEVICE int chunk_column(int c) { return word_column(c / kChunksOfWord) + c % kChunksOfWord * 8; }

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
  NODEWRIGHT_DEVICE float load_counted(int row, int i, OutputRange range) const {
    return row < range.last && word_column(i) < kStride ? *place(row, i) : 0.0f;
  }
  NODEWRIGHT_DEVICE void load_groups(int row, OutputRange range) {
    next_row = row / kRowsOfScales * kRowsOfScales + kRowsOfScales;
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kGroups; ++u) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kWords; ++i) {
        now[u][i] = load_counted(row + u, i, range);
        if (next_row < range.last && word_column(i) < kStride) prefetch_line(place(next_row + u, i));
      }
    }
  }
  NODEWRIGHT_DEVICE void request(const WeightIn& w, OutputRange range) {
    of_matrix = scales_of<kStride>(w);
    load_groups(range.first, range);
  }
};
static_assert(!kScaledBlocks || kBatch <= WeightLayout::kScaleBlock);

// The weight rows in flight: [kBatch][kWords] loads a thread.
struct WeightBatch {
  uint4 w[kBatch][kWords];
  WordScales scales;
};

// Whether every thread has all its words.
constexpr bool kAllWords = kChunks * kThreads * 8 == kStride;
// Word i of the row at `row` (this thread's first element of it), if the row counts.
NODEWRIGHT_DEVICE const Stored* word_of(const Stored* row, int i) { return row + i * kThreads * (8 * kChunksOfWord); }
NODEWRIGHT_DEVICE bool has_word(bool counts, int i) { return counts && (kAllWords || word_column(i) < kStride); }
NODEWRIGHT_DEVICE uint4 load_weight(const Stored* row, bool counts, int i) {
  return has_word(counts, i) ? load_once_16(word_of(row, i)) : uint4{0u, 0u, 0u, 0u};
}
// The same once `word` has been multiplied, into its registers. Of a row that does not count the word stays; nobody
// reads its sum.
NODEWRIGHT_DEVICE void reload_weight(uint4& word, const Stored* row, bool counts, int i) {
  load_once_16_where(has_word(counts, i), word_of(row, i), word);
}

NODEWRIGHT_DEVICE void request_first_batch(WeightBatch& batch, const Stored* weight, OutputRange range) {
  const Stored* row = weight + static_cast<int64_t>(range.first) * kStride + word_column(0);
  NODEWRIGHT_UNROLL
  for (int r = 0; r < kBatch; ++r) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kWords; ++i) batch.w[r][i] = load_weight(row + r * kStride, range.first + r < range.last, i);
  }
}
NODEWRIGHT_DEVICE void request_first_batch(WeightBatch& batch, const WeightIn& w, OutputRange range) {
  request_first_batch(batch, stored(w), range);
  if constexpr (kScaledBlocks) batch.scales.request(w, range);
}

// This thread's columns of x, in fp32.
struct InputSlice {
  float x[kTile][kChunks][8];
  NODEWRIGHT_DEVICE float add_dot(Weights::Eight w, int m, int c, float sum) { return dot_8(w, x[m][c], sum); }
};

// The same as bf16, in half the registers. Each use widens them, to the same bits.
struct PackedSlice {
  uint4 x[kTile][kChunks];
  NODEWRIGHT_DEVICE float add_dot(Weights::Eight w, int m, int c, float sum) {
    uint4& packed = x[m][c];
    forget_origin(packed);  // else the compiler widens all of them once
    float wide[8];
    unpack_8(packed, wide);
    return dot_8(w, wide, sum);
  }
};

// Runs the block's outputs through. `store(segment_first, rows, sum)` is called by every thread after each segment;
// sum(r, m) gives the finished dot product of weight row segment_first + r with row m of x.
template <class Slice, class Store>
NODEWRIGHT_DEVICE void stream_weights(const Stored* weight, OutputRange range, WeightBatch& batch, Slice& slice,
                                      float* partial /*[kSegment][kTile][kWarps]*/, Store store) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  auto sum = [&](int r, int m) {
    float total = 0.0f;
    NODEWRIGHT_UNROLL
    for (int w = 0; w < kWarps; ++w) total += partial[(r * static_cast<int>(kTile) + m) * kWarps + w];
    return total;
  };
  const Stored* next = weight + static_cast<int64_t>(range.first + static_cast<int>(kBatch)) * kStride + word_column(0);
  for (int segment = range.first; segment < range.last; segment += static_cast<int>(kSegment)) {
    const int segment_end = min(segment + static_cast<int>(kSegment), range.last);
    for (int row = segment; row < segment_end; row += static_cast<int>(kBatch)) {
      float sums[kSums] = {};
      const int left = range.last - row - static_cast<int>(kBatch);  // rows after this batch
      // scale(r, i): of word i of the batch's row r.
      const auto multiply = [&](auto scale) {
        NODEWRIGHT_UNROLL
        for (int r = 0; r < kBatch; ++r) {
          if (r > 0 && r % kRowsAtOnce == 0 && row + r >= segment_end) break;
          NODEWRIGHT_UNROLL
          for (int i = 0; i < kWords; ++i) {
            const uint4 word = batch.w[r][i];
            if constexpr (!kLoadsAfter) batch.w[r][i] = load_weight(next + r * kStride, r < left, i);
            NODEWRIGHT_UNROLL
            for (int m = 0; m < kTile; ++m) {
              float& s = sums[r * static_cast<int>(kTile) + m];
              float of_word = kScaledBlocks ? 0.0f : s;
              NODEWRIGHT_UNROLL
              for (int c = 0; c < kChunksOfWord; ++c)
                of_word = slice.add_dot(Weights::eight(word, c), m, i * kChunksOfWord + c, of_word);
              if constexpr (kScaledBlocks)
                s = fmaf(of_word, scale(r, i), s);
              else
                s = of_word;
            }
            if constexpr (kLoadsAfter) reload_weight(batch.w[r][i], next + r * kStride, r < left, i);
          }
        }
      };
      if constexpr (kScaledBlocks) {
        WordScales& scales = batch.scales;
        if (row >= scales.next_row) scales.load_groups(row, range);
        float others[WordScales::kGroups][kWords];  // of the batch's rows in the next groups
        const bool has_others = row + static_cast<int>(kBatch) > scales.next_row && scales.next_row < range.last;
        NODEWRIGHT_UNROLL
        for (int u = 0; u < WordScales::kGroups; ++u) {
          NODEWRIGHT_UNROLL
          for (int i = 0; i < kWords; ++i)
            others[u][i] = has_others ? scales.load_counted(scales.next_row + u, i, range) : 0.0f;
        }
        multiply([&](int r, int i) {
          const float now = scales.now[r % WordScales::kGroups][i], other = others[r % WordScales::kGroups][i];
          return row + r < scales.next_row ? now : other;
        });
      } else {
        multiply(0);
      }
      next += kBatch * kStride;
      warp_sums_scattered<kSums>(sums);
      const int value = lane / (32 / kSums);
      if (lane % (32 / kSums) == 0)
        partial[((row - segment) * static_cast<int>(kTile) + value) * kWarps + warp] = sums[0];
    }
    __syncthreads();
    store(segment, segment_end - segment, sum);
    if (segment_end < range.last) __syncthreads();
  }
}

// The i-th sum of a segment of `rows` weight rows: of weight row r and row m of x. Without a division where there is
// one row: the next kernel waits for what is stored there.
struct SumPlace {
  int r, m;
};
NODEWRIGHT_DEVICE SumPlace sum_place(int i, int rows) {
  if constexpr (kTile == 1) return {i, 0};
  return {i % rows, i / rows};
}

// Eight bf16 from `row` + column of a row of kCols elements that may end anywhere; past the end, zero.
template <class Load>
NODEWRIGHT_DEVICE uint4 load_ragged_8(const bf16* row, int column, Load load_8) {
  if (column + 8 <= kCols) return load_8(row + column);
  uint32_t words[4] = {};
  if constexpr (kCols % 8 != 0) {
    for (int i = 0; i < kCols - column; ++i)
      words[i / 2] |= static_cast<uint32_t>(row[column + i].bits) << (i % 2 * 16);
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

NODEWRIGHT_DEVICE void keep(InputSlice& slice, int m, int c, uint4 columns) { unpack_8(columns, slice.x[m][c]); }
NODEWRIGHT_DEVICE void keep(PackedSlice& slice, int m, int c, uint4 columns) { slice.x[m][c] = columns; }

// The slice of bf16 rows x: kTile rows, `row_stride` elements apart, of which the first kCols count.
template <class Slice>
NODEWRIGHT_DEVICE void load_slice(Slice& slice, const bf16* x, int64_t row_stride) {
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c)
      keep(slice, m, c, load_ragged_8(x + m * row_stride, chunk_column(c), [](const bf16* p) { return load_16(p); }));
  }
}

template <bool kPacked>
struct SliceOf {
  using Type = InputSlice;
};
template <>
struct SliceOf<true> {
  using Type = PackedSlice;
};
using RowSlice = SliceOf<keeps_packed(kChunks)>::Type;  // of rows that come in bf16

// What a kernel without a norm does: requests weights, waits, loads the rows of x, streams, stores. `args`: Product or
// the like, from RowsIn; store(first_row, live, segment, rows, sum) as in stream_weights, with the first
// of the block's rows of x and how many of its kTile count; before(first_row, live, segment, rows): of the first
// segment, as soon as the inputs are there.
template <class Args, class Before, class Store>
NODEWRIGHT_DEVICE void project_rows(const Args& args, Before before, Store store) {
  float* partial = reinterpret_cast<float*>(shared_memory());
  const OutputRange range = block_outputs(args.w.outputs, 1);
  WeightBatch batch;
  request_first_batch(batch, args.w, range);
  release_dependents();
  wait_for_inputs();

  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t live = kSingleRow != 0 ? 1 : args.n_live.data[0] - first_row;
  before(first_row, live, range.first, min(static_cast<int>(kSegment), range.last - range.first));
  RowSlice slice;
  load_slice(slice, args.from.x.data + first_row * args.from.x_stride, args.from.x_stride);
  stream_weights(stored(args.w), range, batch, slice, partial,
                 [&](int segment, int rows, auto sum) { store(first_row, live, segment, rows, sum); });
}

// The scales of the outputs that this thread ends first of the block's first segment, where rows have one: requested
// with the first weights, since the next kernel waits for what is loaded at the end.
template <int kUnit>
struct FirstScales {
  float of[kUnit];
  int first;  // output that of[0] is of

  NODEWRIGHT_DEVICE explicit FirstScales(const WeightIn& w) {
    if constexpr (kScaledRows) {
      const OutputRange range = block_outputs(w.outputs, kUnit);
      const int results = min(static_cast<int>(kSegment), range.last - range.first) / kUnit;
      first = range.first + kUnit * sum_place(static_cast<int>(threadIdx.x), results).r;
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kUnit; ++i) of[i] = first + i < range.last ? scale_of<kStride>(w, first + i) : 0.0f;
    }
  }
  // The sum of an output, number `part` of its unit, with its scale and bias.
  NODEWRIGHT_DEVICE float ended(const WeightIn& w, int output, int part, float sum) const {
    float scale = 1.0f;
    if constexpr (kScaledRows) scale = output == first + part ? of[part] : scale_of<kStride>(w, output);
    return nodewright::ended<kBias>(w, output, sum, scale);
  }
};

}  // namespace nodewright
