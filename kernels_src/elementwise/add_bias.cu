// y[m, n] += kScale * bias[n]. Block (b, m): row m, elements 2048 b on, eight a thread.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/elementwise/add_bias.h"

NODEWRIGHT_KERNEL(add_bias, AddBias, kAddBiasThreads) {
  const int64_t row = blockIdx.y, i = (static_cast<int64_t>(blockIdx.x) * kAddBiasThreads + threadIdx.x) * 8;
  float bias[8] = {};
  if (i + 8 <= args.outputs) unpack_8(load_frozen_16(args.bias.data + i), bias);
  NODEWRIGHT_UNROLL
  for (float& b : bias) b = scaled_by<kScale>(b);
  release_dependents();
  wait_for_inputs();
  if (i >= args.outputs || row >= args.n_live.data[0]) return;
  float* const y = args.y.data + row * args.y_stride + i;
  if (i + 8 <= args.outputs && args.y_stride % 4 == 0) {
    NODEWRIGHT_UNROLL
    for (int half = 0; half < 8; half += 4) {
      const float4 v = load_fp32_4(y + half);
      store_fp32_4(y + half,
                   make_float4(v.x + bias[half], v.y + bias[half + 1], v.z + bias[half + 2], v.w + bias[half + 3]));
    }
    return;
  }
  NODEWRIGHT_UNROLL
  for (int j = 0; j < 8; ++j)
    if (i + j < args.outputs) y[j] += scaled_by<kScale>(to_float(args.bias.data[i + j]));
}
