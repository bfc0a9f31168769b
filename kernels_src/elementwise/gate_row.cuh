// What gate and adapted_gate share: y[m, i] = f(x[m, 2i]) * x[m, 2i + 1] in fp32, rounded to bf16; with kGated 0 f(x[m,
// i]); with kBias of x + bias instead of x. Block (b, m): row m, eight elements of x a thread. f: kActivation.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/elementwise/activation.cuh"
#include "kernels_src/elementwise/gate.h"

namespace nodewright {

// change(row, i, v): what else happens to the thread's eight elements of x, of which element i of y is the first.
template <class Change>
NODEWRIGHT_DEVICE void gate_row(const Gate& args, Change change) {
  constexpr int kUnit = kGated != 0 ? 2 : 1, kEach = 8 / kUnit;  // elements of x for one of y; of y, of a thread
  release_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.y, i = (static_cast<int64_t>(blockIdx.x) * kGateThreads + threadIdx.x) * kEach;
  if (i >= args.outputs) return;
  const bool whole = kRagged == 0 || i + kEach <= args.outputs;
  const auto load = [&](float(&to)[8], const bf16* from, auto load_8) {
    if (whole) return unpack_8(load_8(from), to);
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j) to[j] = i + j / kUnit < args.outputs ? to_float(from[j]) : 0.0f;
  };
  float v[8], bias[8];
  load(v, args.from.x.data + row * args.from.x_stride + kUnit * i, [](const bf16* p) { return load_16(p); });
  if constexpr (kBias != 0) load(bias, args.bias.data + kUnit * i, [](const bf16* p) { return load_frozen_16(p); });
  if (row >= args.n_live.data[0]) return;  // not before: the loads would follow each other
  if constexpr (kBias != 0) {
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j) v[j] += bias[j];
  }
  change(row, i, v);
  const auto value = [&](int j) {
    if constexpr (kGated != 0) return activate<kActivation>(v[2 * j]) * v[2 * j + 1];
    return activate<kActivation>(v[j]);
  };
  bf16* y = args.to.y.data + row * args.to.y_stride + i;
  NODEWRIGHT_UNROLL
  for (int j = 0; j < kEach; ++j)
    if (i + j < args.outputs) y[j] = to_bf16(value(j));
}

}  // namespace nodewright
