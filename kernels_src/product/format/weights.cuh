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
#include "kernels_src/product/format/weight_layout.h"

// What namespace nodewright has hides these.
constexpr long long kFormat = 0, kScaleColumns = 0, kScaleUnit = 1;

namespace nodewright {

template <int64_t kCode>
struct WeightsOf {
  using Type = Bf16Weights;
};
template <>
struct WeightsOf<static_cast<int64_t>(WeightCode::fp8)> {
  using Type = Fp8Weights;
};
template <>
struct WeightsOf<static_cast<int64_t>(WeightCode::int4)> {
  using Type = Int4Weights;
};
using Weights = WeightsOf<kFormat>::Type;
using Stored = Weights::Element;

constexpr bool kInt4 = kFormat == static_cast<int64_t>(WeightCode::int4);
constexpr bool kScaledRows = kFormat != 0 && kScaleColumns == 0;
constexpr bool kScaledBlocks = kFormat != 0 && kScaleColumns != 0 && !kInt4;  // of rows and columns
constexpr int kUnitOfScales = static_cast<int>(kScaleUnit);
constexpr int kRowsOfScales = static_cast<int>(WeightLayout::kScaleBlock) * kUnitOfScales;  // of kUnitOfScales groups

// The bytes of some columns of a row.
constexpr int bytes_of_columns(int64_t columns) {
  return static_cast<int>(columns / Weights::kColumnsOfElement * Weights::kElementBytes);
}

// The zero of a group that eight elements are of, where groups have some.
NODEWRIGHT_DEVICE void take_zero(EightInt4& eight, uint32_t group) { eight.zero = zero_of_group(group); }
template <class Eight>
NODEWRIGHT_DEVICE void take_zero(Eight&, uint32_t) {}

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
