// The format of a product's weights, and the scales of those that have some (product/format/weight_layout.h).
//
// Constants, of kernels whose weights are not in bf16: kFormat, kScaleColumns (that share a scale; 0: all of a row do),
// kScaleUnit (of groups of rows).
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/product/format/bf16_weights.cuh"
#include "kernels_src/product/format/fp8_halves.cuh"
#include "kernels_src/product/format/fp8_weights.cuh"
#include "kernels_src/product/format/int4_weights.cuh"
#include "kernels_src/product/format/offset_weights.cuh"
#include "kernels_src/product/format/q4_weights.cuh"
#include "kernels_src/product/format/q8_weights.cuh"
#include "kernels_src/product/format/weight_layout.h"

// What namespace nodewright has hides these.
constexpr long long kFormat = 0, kScaleColumns = 0, kScaleUnit = 1;

namespace nodewright {

template <WeightCode kCode, int kGroup>
struct WeightsOf {
  using Type = Bf16Weights;
};
template <int kGroup>
struct WeightsOf<WeightCode::fp8, kGroup> {
  using Type = Fp8Weights;
};
template <int kGroup>
struct WeightsOf<WeightCode::int4, kGroup> {
  using Type = Int4Weights<kGroup>;
};
template <int kGroup>
struct WeightsOf<WeightCode::q4, kGroup> {
  using Type = Q4Weights<kGroup>;
};
template <int kGroup>
struct WeightsOf<WeightCode::q4_offset, kGroup> {
  using Type = OffsetWeights<NibbleCodes, kGroup>;
};
template <int kGroup>
struct WeightsOf<WeightCode::q8, kGroup> {
  using Type = Q8Weights<kGroup>;
};
template <int kGroup>
struct WeightsOf<WeightCode::q8_offset, kGroup> {
  using Type = OffsetWeights<ByteCodes, kGroup>;
};
constexpr WeightLayout kLayout{static_cast<WeightCode>(kFormat), false, kScaleUnit, kScaleColumns};
using Weights = WeightsOf<kLayout.code, static_cast<int>(kScaleColumns)>::Type;
using Stored = Weights::Element;

constexpr bool kHasGroups = kLayout.is_grouped();  // groups of a row's columns have scales
constexpr bool kNibbles = kLayout.has_nibbles();
constexpr bool kInt4 = kLayout.is_int4();
constexpr bool kScaledRows = kFormat != 0 && kScaleColumns == 0;
constexpr bool kScaledBlocks = kFormat != 0 && kScaleColumns != 0 && !kHasGroups;  // of rows and columns
constexpr int kUnitOfScales = static_cast<int>(kScaleUnit);
constexpr int kRowsOfScales = static_cast<int>(WeightLayout::kScaleBlock) * kUnitOfScales;  // of kUnitOfScales groups

// The bytes of some columns of a row.
constexpr int bytes_of_columns(int64_t columns) {
  return static_cast<int>(columns / Weights::kColumnsOfElement * Weights::kElementBytes);
}

// The first of the eight columns of chunk `chunk` of a word of 16 bytes that begins at `column`.
NODEWRIGHT_DEVICE constexpr int column_of_chunk(int column, int chunk) {
  if constexpr (kNibbles) return column / 128 * 128 + chunk * 32 + column % 128 / 4;
  return column + chunk * 8;
}
// Bytes of what groups share before those of a word of 16 bytes that begins at `column`.
NODEWRIGHT_DEVICE constexpr int group_byte(int column) {
  return column / Weights::kColumnsOfGroups * Weights::kBytesOfWord;
}
// Chunk `chunk` of a word, as dot_8 takes it. groups: what the word's groups share.
template <class Format = Weights>
NODEWRIGHT_DEVICE auto eight_of(uint4 word, int chunk, [[maybe_unused]] const uint32_t* groups) {
  if constexpr (kHasGroups)
    return weights_of<Format>(word, chunk, groups);
  else
    return Format::eight(word, chunk);
}

NODEWRIGHT_DEVICE const Stored* stored(const WeightIn& w) { return reinterpret_cast<const Stored*>(w.weight.data); }
// After the rows of W. kStride: columns between two rows.
template <int64_t kStride>
NODEWRIGHT_DEVICE const float* scales_of(const bf16* weight, int64_t outputs) {
  return reinterpret_cast<const float*>(reinterpret_cast<const unsigned char*>(weight) +
                                        outputs * bytes_of_columns(kStride));
}
template <int64_t kStride>
NODEWRIGHT_DEVICE const float* scales_of(const WeightIn& w) {
  return scales_of<kStride>(w.weight.data, w.outputs);
}

// Words of 32 bits between the groups of two rows.
template <int64_t kStride>
constexpr int kGroupStride = 0;
template <int64_t kStride>
requires kHasGroups constexpr int kGroupStride<kStride> = static_cast<int>(kLayout.group_stride(kStride));
// What the groups of row `row` share.
template <int64_t kStride>
NODEWRIGHT_DEVICE const unsigned char* groups_of(const float* scales, int64_t row) {
  return reinterpret_cast<const unsigned char*>(scales + row * kGroupStride<kStride>);
}

// Where the scales of blocks of columns begin of the group that row `row` is in.
template <int64_t kStride>
NODEWRIGHT_DEVICE int first_scale(int row) {
  const int group = row / kRowsOfScales * kUnitOfScales + row % kUnitOfScales;
  return group * static_cast<int>(WeightLayout::scale_stride(kStride));
}

// The scale of output `output`, where rows have one.
template <int64_t kStride>
NODEWRIGHT_DEVICE float scale_of(const WeightIn& w, int output) {
  if constexpr (kScaledRows) return scales_of<kStride>(w)[output];
  return 1.0f;
}

// sum * scale + bias[output], where there are such. kBias: outputs have one.
template <int64_t kBias>
NODEWRIGHT_DEVICE float ended(const WeightIn& w, int output, float sum, float scale) {
  if constexpr (kScaledRows) sum *= scale;
  if constexpr (kBias != 0) sum += to_float(w.bias.data[output]);
  return sum;
}

}  // namespace nodewright
