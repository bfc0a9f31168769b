// y[m, n] = f(sum_k ((x[m, k] - mean) / sqrt(variance + eps) * gain[k] + shift[k]) * W[n, k] + bias[n]), mean and
// variance over kCols, all in fp32. Block (b, m): outputs range b, row m; every group of lanes norms the row for
// itself.
#include "kernels_src/device/row_dot.cuh"
#include "kernels_src/layer_norm_project.h"

namespace nodewright {

// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: v * Phi(v), exactly or with its tanh approximation.
NODEWRIGHT_DEVICE float activate(float v) {
  if constexpr (kActivation == static_cast<int64_t>(Activation::gelu_erf))
    return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));  // 1 / sqrt(2)
  if constexpr (kActivation == static_cast<int64_t>(Activation::gelu_tanh))
    return 0.5f * v * (1.0f + tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v)));  // sqrt(2 / pi)
  return v;
}

using LayerNormArgs = LayerNormProject<WeightElement>;

}  // namespace nodewright

NODEWRIGHT_KERNEL(layer_norm_project, LayerNormArgs, kThreads) {
  const OutputRange range = block_outputs(args.outputs);
  WeightRow row;
  request(row, args, range.mine, range.last);
  float gain[kChunks][kElements], shift[kChunks][kElements], x[kChunks][kElements];
  NODEWRIGHT_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kElements; ++i) {
      const int column = lane_column(c) + i;
      gain[c][i] = column < kCols ? as_float(args.gain.data[column]) : 0.0f;
      shift[c][i] = column < kCols ? as_float(args.shift.data[column]) : 0.0f;
    }
  }
  release_dependents();
  wait_for_inputs();

  const int64_t m = blockIdx.y;
  const bool live = m < args.n_live.data[0];
  const float* from = args.x.data + m * args.x_stride;
  float mean[1] = {0.0f}, variance[1] = {0.0f};
  NODEWRIGHT_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    load_columns(x[c], from, lane_column(c));
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kElements; ++i) mean[0] += x[c][i];
  }
  group_sums<kGroup>(mean);
  mean[0] *= 1.0f / static_cast<float>(kCols);
  NODEWRIGHT_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kElements; ++i) {
      x[c][i] = lane_column(c) + i < kCols ? x[c][i] - mean[0] : 0.0f;
      variance[0] = fmaf(x[c][i], x[c][i], variance[0]);
    }
  }
  group_sums<kGroup>(variance);
  const float scale = 1.0f / sqrtf(variance[0] * (1.0f / static_cast<float>(kCols)) + args.eps);
  NODEWRIGHT_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kElements; ++i) x[c][i] = fmaf(x[c][i] * scale, gain[c][i], shift[c][i]);
  }

  project_row(
      args, range, row,
      [&](int c, float(&columns)[kElements]) {
        NODEWRIGHT_UNROLL
        for (int i = 0; i < kElements; ++i) columns[i] = x[c][i];
      },
      [&](int output, float sum) {
        if (live) args.y.data[m * args.y_stride + output] = activate(sum);
      });
}
