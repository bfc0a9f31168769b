// A row of x times rows of a weight matrix in bf16 or float, with bias and activation: what layer_norm_project and
// project_bias_add share. Made for matrices of a few thousand rows at most; product/rows/matvec.cuh streams large ones.
//
// kLanes lanes share an output: lane l of a group owns the columns (c * kLanes + l) * kElements .. + kElements - 1 of
// every chunk c. The sum goes through a lane's columns in order, then over the group in a butterfly, so it depends on
// the shape of W only. Block (b, m): range b of the outputs, row m.
//
// Constants: kCols, kWeightBytes, kLanes, kThreads (examples/nanogpt/kernels/projection_shape.h).
#pragma once

#include "examples/nanogpt/kernels/weight_element.cuh"
#include "kernels_src/device/output_range.cuh"

namespace nodewright {

constexpr int kElements = static_cast<int>(16 / kWeightBytes);  // weights of one load
constexpr int kGroup = static_cast<int>(kLanes);
constexpr int kGroups = static_cast<int>(kThreads / kLanes);
constexpr int kRowStride = static_cast<int>((kCols + kElements - 1) / kElements) * kElements;
constexpr int kChunks = (kRowStride / kElements + kGroup - 1) / kGroup;
// Chunks of a row requested ahead. Twice as many registers hold them, beside the row of x: few of many.
constexpr int kHeld = kChunks <= 8 ? kChunks : 4;

NODEWRIGHT_DEVICE void unpack(uint4 v, float (&f)[8]) { unpack_8(v, f); }
NODEWRIGHT_DEVICE void unpack(uint4 v, float (&f)[4]) {
  f[0] = bits_to_float(v.x), f[1] = bits_to_float(v.y), f[2] = bits_to_float(v.z), f[3] = bits_to_float(v.w);
}

// First column of this lane in chunk c.
NODEWRIGHT_DEVICE int lane_column(int c) { return (c * kGroup + static_cast<int>(threadIdx.x) % kGroup) * kElements; }

// The output at which this thread's group starts.
NODEWRIGHT_DEVICE int first_output(OutputRange range) { return range.first + static_cast<int>(threadIdx.x) / kGroup; }

// The start of a weight row, and its bias.
struct WeightRow {
  uint4 chunks[kHeld];
  float bias;
};

NODEWRIGHT_DEVICE uint4 load_weights(const WeightElement* row, bool counts, int c) {
  constexpr bool kExact = kChunks * kGroup * kElements == kRowStride;
  if (!counts || (!kExact && lane_column(c) >= kRowStride)) return uint4{0u, 0u, 0u, 0u};
  return load_frozen_16(row + lane_column(c));
}

template <class Args>
NODEWRIGHT_DEVICE void request(WeightRow& row, const Args& args, int output, int last) {
  const bool counts = output < last;
  const WeightElement* from = args.weight.data + static_cast<int64_t>(output) * kRowStride;
  NODEWRIGHT_UNROLL
  for (int c = 0; c < kHeld; ++c) row.chunks[c] = load_weights(from, counts, c);
  row.bias = counts && args.bias.count != 0 ? as_float(args.bias.data[output]) : 0.0f;
}

// kElements floats of the row x from `column` on, which is 16-byte aligned if x is; zeros past kCols.
NODEWRIGHT_DEVICE void load_columns(float (&to)[kElements], const float* x, int column) {
  NODEWRIGHT_UNROLL
  for (int i = 0; i < kElements; i += 4) {
    if (column + i + 4 <= kCols) {
      const uint4 v = load_16(x + column + i);
      to[i] = bits_to_float(v.x), to[i + 1] = bits_to_float(v.y);
      to[i + 2] = bits_to_float(v.z), to[i + 3] = bits_to_float(v.w);
    } else {
      for (int j = i; j < i + 4; ++j) to[j] = column + j < kCols ? x[column + j] : 0.0f;
    }
  }
}

// sum += w . x, in order.
NODEWRIGHT_DEVICE float dot_chunk(uint4 weights, const float (&x)[kElements], float sum) {
  float w[kElements];
  unpack(weights, w);
  NODEWRIGHT_UNROLL
  for (int i = 0; i < kElements; ++i) sum = fmaf(w[i], x[i], sum);
  return sum;
}

// Runs the block's outputs through: `row` holds the first one of this group. columns(c, x) gives this lane's columns of
// chunk c; store(output, sum + bias) is called by one lane for each output.
template <class Args, class Columns, class Store>
NODEWRIGHT_DEVICE void project_row(const Args& args, OutputRange range, WeightRow row, Columns columns, Store store) {
  const int rounds = (range.last - range.first + kGroups - 1) / kGroups;  // the same for every lane of the block
  int output = first_output(range);
  for (int r = 0; r < rounds; ++r, output += kGroups) {
    const WeightRow now = row;
    if (r + 1 < rounds) request(row, args, output + kGroups, range.last);
    float sums[1] = {0.0f};
    float x[kElements];
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kHeld; ++c) {
      columns(c, x);
      sums[0] = dot_chunk(now.chunks[c], x, sums[0]);
    }
    for (int c = kHeld; c < kChunks; ++c) {
      columns(c, x);
      sums[0] =
          dot_chunk(load_weights(args.weight.data + static_cast<int64_t>(output) * kRowStride, output < range.last, c),
                    x, sums[0]);
    }
    group_sums<kGroup>(sums);
    if (output < range.last && static_cast<int>(threadIdx.x) % kGroup == 0) store(output, sums[0] + now.bias);
  }
}

}  // namespace nodewright
