// y[m, i] = f(x[m, 2i]) * x[m, 2i + 1] in fp32, rounded to bf16; with kGated 0 f(x[m, i]); with kBias of x + bias
// instead of x. Block (b, m): row m, eight elements of x a thread. f: kActivation.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/projection/activation.cuh"
#include "kernels_src/projection/gate.h"

NODEWRIGHT_KERNEL(gate, Gate, kGateThreads) {
  constexpr int kUnit = kGated != 0 ? 2 : 1, kEach = 8 / kUnit;  // elements of x for one of y; of y, of a thread
  release_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.y, i = (static_cast<int64_t>(blockIdx.x) * kGateThreads + threadIdx.x) * kEach;
  if (i >= args.outputs) return;
  float v[8];
  unpack_8(load_16(args.x.data + row * args.x_stride + kUnit * i), v);
  uint4 bias{0u, 0u, 0u, 0u};
  if constexpr (kBias != 0)
    if (i + kEach <= args.outputs) bias = load_frozen_16(args.bias.data + kUnit * i);
  if (row >= args.n_live.data[0]) return;  // not before: the loads would follow each other
  if constexpr (kBias != 0) {
    float b[8];
    unpack_8(bias, b);
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j) {
      if (i + kEach > args.outputs && i + j / kUnit < args.outputs) b[j] = to_float(args.bias.data[kUnit * i + j]);
      v[j] += b[j];
    }
  }
  const auto value = [&](int j) {
    if constexpr (kGated != 0) return activate(v[2 * j]) * v[2 * j + 1];
    return activate(v[j]);
  };
  bf16* y = args.y.data + row * args.y_stride + i;
  NODEWRIGHT_UNROLL
  for (int j = 0; j < kEach; ++j)
    if (i + j < args.outputs) y[j] = to_bf16(value(j));
}
