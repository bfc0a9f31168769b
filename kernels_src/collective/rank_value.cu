// value[m, n] = (y[m, n] + bias[n]) * kScale; with kChosen sum_j weights[m, j] * y[m, j, n], in the order of j, stands
// for y[m, n]. Block (b, c): columns b * 256 .. + 255 of rows c, c + gridDim.y, ...
#include "kernels_src/collective/rank_value.h"
#include "kernels_src/device/numeric.cuh"

NODEWRIGHT_KERNEL(rank_value, RankValue, kRankValueThreads) {
  release_dependents();
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kRankValueThreads + threadIdx.x;
  float bias = 0.0f;
  if constexpr (kBias != 0)
    if (n < args.own.cols) bias = to_float(args.own.bias.data[n]);
  wait_for_inputs();
  if (n >= args.own.cols) return;
  for (int64_t row = blockIdx.y; row < args.own.n_live.data[0]; row += gridDim.y) {
    float v = 0.0f;
    if constexpr (kChosen != 0) {
      for (int64_t pair = row * kChosen; pair < (row + 1) * kChosen; ++pair)
        v = fmaf(args.own.weights.data[pair], args.own.y.data[pair * args.stride + n], v);
    } else if constexpr (kBulk != 0) {
      v = to_float(args.own.y_bf16.data[row * args.stride + n]);
    } else {
      v = args.own.y.data[row * args.stride + n];
    }
    v = scaled_by<kScale>(v + bias);
    if constexpr (kBulk != 0)
      args.value_bf16.data[row * args.stride + n] = to_bf16(v);
    else
      args.value.data[row * args.stride + n] = v;
  }
}
