// A tile of rows of an expert's matrix on its way to a warp's registers, and its products with rows of x in shared
// memory.
//
// Constants: as of experts/expert_tiles.cuh.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/device/tensor.cuh"
#include "kernels_src/product/format/weights.cuh"
#include "kernels_src/product/tiles/span_product.cuh"

namespace nodewright {

constexpr int kTokens = static_cast<int>(kJobRows), kTiles = kTokens / 8, kPairs = kTiles / 2;
constexpr int kRows = static_cast<int>(kTileRows);                                   // of W, in a tile
constexpr int64_t kRowElements = kStride / Weights::kColumnsOfElement;               // as W's row is stored
constexpr int kRowBytes = static_cast<int>(kPieceColumns) * 2 + Weights::kXPadding;  // of x
// A slot holds a lane's words of each of its rows of W in a run of spans of 64 columns: two words of one span in bf16,
// one of codes of 8 bits, one of two spans of 4 bits.
constexpr int kWordsOfRow = kFormat == 0 ? 2 : 1, kSpansOfSlot = kNibbles ? 2 : 1, kSlotColumns = 64 * kSpansOfSlot;
constexpr int kGroupWords = kHasGroups ? static_cast<int>(kLayout.group_words_of_word()) : 1;
constexpr int kWordsOfSlot = kWordsOfRow * kRows / 8;
// Sums that wait for a scale take registers, too.
constexpr int kSlotsAhead = (!kHasGroups && !kScaledBlocks ? 12
                             : kTokens > 32                ? 4
                             : kGroupWords > 1             ? 6
                                                           : 8) /
                            kWordsOfSlot;
static_assert(kTokens % 16 == 0 && (kRows == 8 || kRows == 16));

struct TileWords {
  uint4 words[kSlotsAhead][kWordsOfRow][kRows / 8];
  alignas(16) uint32_t groups[kHasGroups ? kSlotsAhead : 1][kRows / 8][kGroupWords];  // what groups of columns share
  const Stored* rows[kRows / 8];                   // this lane's, g and g + 8; null: there is none
  const unsigned char* groups_of_rows[kRows / 8];  // of this lane's columns of a slot
  const float* of_blocks;                          // of the tile's rows, where blocks of columns have scales
  float of_rows[kRows / 8][2];                     // of outputs 2t and 2t + 1 of each half of the tile, where rows have

  // `expert`: rows of all experts before this one's.
  NODEWRIGHT_DEVICE TileWords(const WeightIn& w, int64_t expert, int first_row) {
    const float* const scales = scales_of<kStride>(w.weight.data, kExperts * kOutputs);
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kRows / 8; ++i) {
      const int row = first_row + lane_of_warp() / 4 + 8 * i;
      rows[i] = row < kOutputs ? stored(w) + expert * kRowElements + row * kRowElements +
                                     lane_of_warp() % 4 * (16 / Weights::kElementBytes)
                               : nullptr;
      if constexpr (kHasGroups) groups_of_rows[i] = groups_of<kStride>(scales, expert + row);
      if constexpr (kScaledRows) {
        NODEWRIGHT_UNROLL
        for (int k = 0; k < 2; ++k) {
          const int output = first_row + 8 * i + lane_of_warp() % 4 * 2 + k;
          of_rows[i][k] = output < kOutputs ? scales[expert + output] : 0.0f;
        }
      }
    }
    if constexpr (kScaledBlocks) of_blocks = scales + first_scale<kStride>(static_cast<int>(expert) + first_row);
  }
  NODEWRIGHT_DEVICE void request(int slot, int number) {
    NODEWRIGHT_UNROLL
    for (int s = 0; s < kWordsOfRow; ++s) {
      const int column = number * kSpansOfSlot * 64 + s * 32;
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kRows / 8; ++i)
        words[slot][s][i] = rows[i] != nullptr && column + lane_of_warp() % 4 * Weights::kLaneColumns < kStride
                                ? load_once_16(rows[i] + column / Weights::kColumnsOfElement)
                                : uint4{0u, 0u, 0u, 0u};
    }
    if constexpr (kHasGroups) {
      const int column = number * kSlotColumns + lane_of_warp() % 4 * 8 * Weights::kChunksOfWord;
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kRows / 8; ++i)
        if (rows[i] != nullptr && column < kStride)
          load_group_words<Weights::kBytesOfWord>(groups[slot][i], groups_of_rows[i] + group_byte(column));
    }
  }

  // sums += the products of a slot, whose number in the row is `number`. x: of the slot's first span, in shared memory.
  template <class Format = Weights>  // int4 has no such spans
  NODEWRIGHT_DEVICE void multiply(PairSums (&sums)[kPairs], int slot, int number, const unsigned char* x) const {
    const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
    x += g * kRowBytes + t * Weights::kLaneColumns * 2;
    const auto of_x = [x](int s, int n) { return load_16(x + n * 8 * kRowBytes + Weights::step_column(s) * 2); };
    if constexpr (kFormat == 0) {
      multiply_span<kRows, kTiles, false>(
          sums, [&](int s, int row) { return words[slot][s][row / 8]; }, of_x);
    } else if constexpr (kInt4) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int half = 0; half < 2; ++half) multiply_int4(sums, slot, half, x + half * 128);
    } else if constexpr (kHasGroups) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int half = 0; half < kSpansOfSlot; ++half) multiply_grouped<Format>(sums, slot, half, x + half * 128);
    } else {
      const auto load = [&](int, int row) { return words[slot][0][row / 8]; };
      const typename Format::template Span<kRows, decltype(load)> span(load);
      if constexpr (kScaledBlocks) {
        const int block = number * 64 / static_cast<int>(WeightLayout::kScaleBlock);
        float scales[2];
        NODEWRIGHT_UNROLL
        for (int k = 0; k < 2; ++k)
          scales[k] = of_blocks[k % kUnitOfScales * static_cast<int>(WeightLayout::scale_stride(kStride)) + block];
        add_scaled<0, 2>(sums, span, of_x, scales, scales);
      } else {
        multiply_span<kRows, kTiles, false>(sums, span, of_x);
      }
    }
  }

 private:
  // sums += products times the scales of outputs 2t and 2t + 1, and of those 8 further on.
  // kFirst, kLast: steps.
  template <int kFirst, int kLast, class Words, class X>
  NODEWRIGHT_DEVICE static void add_scaled(PairSums (&sums)[kPairs], const Words& span, const X& of_x,
                                           const float (&upper)[2], const float (&lower)[2]) {
    uint4 operands[2][kRows / 8];
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int s = kFirst; s < kLast; ++s) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < kRows / 8; ++i) operands[s][i] = span(s, lane_of_warp() / 4 + 8 * i);
    }
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int p = 0; p < kPairs; ++p) {  // one by one: registers hold no sums of all
      PairSums of_pair[1] = {};
      multiply_span<kRows, 2, false, kFirst, kLast>(
          of_pair, [&](int s, int row) { return operands[s][row / 8]; },
          [&](int s, int n) { return of_x(s, 2 * p + n); });
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i) {
        sums[p].upper[i] = fmaf(of_pair[0].upper[i], upper[i % 2], sums[p].upper[i]);
        sums[p].lower[i] = fmaf(of_pair[0].lower[i], lower[i % 2], sums[p].lower[i]);
      }
    }
  }
  // Half of a slot of int4: a span. Where its steps have groups of their own, each by itself.
  NODEWRIGHT_DEVICE void multiply_int4(PairSums (&sums)[kPairs], int slot, int half, const unsigned char* x) const {
    const Int4Words<kRows> span([&](int row) {
      const uint4 word = words[slot][0][row / 8];
      return half == 0 ? uint2{word.x, word.y} : uint2{word.z, word.w};
    });
    const auto of_x = [x](int s, int n) { return load_16(x + n * 8 * kRowBytes + Weights::step_column(s) * 2); };
    const auto add_group = [&]<int kFirst, int kLast>(int group) {
      const auto zero = [&](int row) { return zero_of_group(groups[slot][row / 8][group]); };
      const float upper = scale_of_group(groups[slot][0][group]),
                  lower = scale_of_group(groups[slot][kRows / 8 - 1][group]);
      float above[2], below[2];
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int k = 0; k < 2; ++k) {  // outputs 2t + k have the scales of lanes with as great a g
        const int from = (lane_of_warp() % 4 * 2 + k) * 4;
        above[k] = __shfl_sync(0xffffffffu, upper, from), below[k] = __shfl_sync(0xffffffffu, lower, from);
      }
      add_scaled<kFirst, kLast>(sums, span.less_zeros(zero), of_x, above, below);
    };
    if constexpr (kScaleColumns < 64) {
      add_group.template operator()<0, 1>(2 * half);
      add_group.template operator()<1, 2>(2 * half + 1);
    } else {
      add_group.template operator()<0, 2>(kScaleColumns < 128 ? half : 0);
    }
  }
  // A span of codes that become numbers before they are multiplied.
  template <class Format>
  NODEWRIGHT_DEVICE void multiply_grouped(PairSums (&sums)[kPairs], int slot, int half, const unsigned char* x) const {
    const GroupedSpan<Format, kRows, false> span(
        [&](int row) {
          const uint4 word = words[slot][0][row / 8];
          if constexpr (!kNibbles)
            return word;
          else
            return half == 0 ? uint2{word.x, word.y} : uint2{word.z, word.w};
        },
        [&](int row) {
          return reinterpret_cast<const unsigned char*>(groups[slot][row / 8]) + half * Format::kBytesOfSpan;
        });
    multiply_span<kRows, kTiles, false>(
        sums, span, [x](int s, int n) { return load_16(x + n * 8 * kRowBytes + Weights::step_column(s) * 2); });
  }
};

}  // namespace nodewright
