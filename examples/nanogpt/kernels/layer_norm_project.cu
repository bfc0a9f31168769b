// y[m, n] = f(sum_k ((x[m, k] - mean) / sqrt(variance + eps) * gain[k] + shift[k]) * W[n, k] + bias[n]), mean and
// variance over kCols, all in fp32. Block (b, m): outputs range b, row m; every group of lanes norms the row for
// itself.
#include "examples/nanogpt/kernels/layer_norm_project.h"
#include "examples/nanogpt/kernels/row_dot.cuh"
#include "kernels_src/elementwise/activation.cuh"

namespace nodewright {

using LayerNormArgs = LayerNormProject<WeightElement>;

// A row of at most 1024 columns stays in registers with its gains and shifts, which are requested before the wait; a
// wider one is read anew from L1 wherever it is needed.
constexpr bool kInRegisters = kChunks * kElements <= 32;
constexpr int kKept = kInRegisters ? kChunks : 1;

// This lane's columns of the norm's two vectors.
struct Norm {
  float gain[kElements], shift[kElements];
};
NODEWRIGHT_DEVICE void load_norm(Norm& norm, const LayerNormArgs& args, int c) {
  NODEWRIGHT_UNROLL
  for (int i = 0; i < kElements; ++i) {
    const int column = lane_column(c) + i;
    norm.gain[i] = column < kCols ? as_float(args.gain.data[column]) : 0.0f;
    norm.shift[i] = column < kCols ? as_float(args.shift.data[column]) : 0.0f;
  }
}

// Calls use(c) for every chunk, with c a constant where registers are indexed by it.
template <class Use>
NODEWRIGHT_DEVICE void for_each_chunk(Use use) {
  if constexpr (kInRegisters) {
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) use(c);
  } else {
    for (int c = 0; c < kChunks; ++c) use(c);
  }
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(layer_norm_project, LayerNormArgs, kThreads) {
  const OutputRange range = block_outputs(args.outputs);
  WeightRow row;
  request(row, args, first_output(range), range.last);
  Norm norms[kKept];
  if constexpr (kInRegisters) for_each_chunk([&](int c) { load_norm(norms[c], args, c); });
  release_dependents();
  wait_for_inputs();

  const int64_t m = blockIdx.y;
  const bool live = m < args.n_live.data[0];
  const float* from = args.x.data + m * args.x_stride;
  float kept[kKept][kElements];
  if constexpr (kInRegisters) for_each_chunk([&](int c) { load_columns(kept[c], from, lane_column(c)); });
  const auto raw = [&](int c, float(&x)[kElements]) {
    if constexpr (kInRegisters) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kElements; ++i) x[i] = kept[c][i];
    } else {
      load_columns(x, from, lane_column(c));
    }
  };

  float mean[1] = {0.0f}, variance[1] = {0.0f};
  for_each_chunk([&](int c) {
    float x[kElements];
    raw(c, x);
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kElements; ++i) mean[0] += x[i];
  });
  group_sums<kGroup>(mean);
  mean[0] *= 1.0f / static_cast<float>(kCols);
  for_each_chunk([&](int c) {
    float x[kElements];
    raw(c, x);
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kElements; ++i) {
      const float centred = lane_column(c) + i < kCols ? x[i] - mean[0] : 0.0f;
      variance[0] = fmaf(centred, centred, variance[0]);
    }
  });
  group_sums<kGroup>(variance);
  const float scale = 1.0f / sqrtf(variance[0] * (1.0f / static_cast<float>(kCols)) + args.eps);

  project_row(
      args, range, row,
      [&](int c, float(&x)[kElements]) {
        Norm norm;
        if constexpr (kInRegisters)
          norm = norms[c];
        else
          load_norm(norm, args, c);
        raw(c, x);
        NODEWRIGHT_UNROLL
        for (int i = 0; i < kElements; ++i) x[i] = fmaf((x[i] - mean[0]) * scale, norm.gain[i], norm.shift[i]);
      },
      [&](int output, float sum) {
        if (live) args.y.data[m * args.y_stride + output] = activate<kActivation>(sum);
      });
}
