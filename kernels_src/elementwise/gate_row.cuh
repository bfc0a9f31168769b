// What gate and adapted_gate share: y[m, i] = f(x[m, 2i]) * x[m, 2i + 1] in fp32, rounded to bf16; with kGated 0 f(x[m,
// i]); with kBias of x + bias instead of x. Block (b, m): row m, kPasses times eight elements of x a thread. f:
// kActivation.
#pragma once

#include "kernels_src/device/tensor.cuh"
#include "kernels_src/elementwise/activation.cuh"
#include "kernels_src/elementwise/gate.h"

namespace nodewright {

// change(row, i, v): what else happens to eight elements of x, of which element i of y is the first.
template <class Change>
NODEWRIGHT_DEVICE void gate_row(const Gate& args, Change change) {
  constexpr int kUnit = kGated != 0 ? 2 : 1, kEach = 8 / kUnit;  // elements of x for one of y; of y, of a thread
  release_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.y;
  const auto element = [](int pass) {
    return (static_cast<int64_t>(blockIdx.x * kPasses + pass) * kGateThreads + threadIdx.x) * kEach;
  };
  const auto is_whole = [&](int64_t i) { return i + kEach <= args.outputs; };
  const bf16* const x = args.from.x.data + row * args.from.x_stride;
  // All before the first is needed, and before n_live is: loads that follow each other would take most of the time.
  const int live = args.n_live.data[0];
  uint4 words[kPasses];
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p)
    words[p] = is_whole(element(p)) ? load_16(x + kUnit * element(p)) : uint4{0u, 0u, 0u, 0u};
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p) forget_origin(words[p]);
  if (row >= live) return;
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p) {
    const int64_t i = element(p);
    if (i >= args.outputs) return;
    const bool whole = kRagged == 0 || is_whole(i);
    const auto one_by_one = [&](float(&to)[8], const bf16* from) {
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) to[j] = i + j / kUnit < args.outputs ? to_float(from[j]) : 0.0f;
    };
    float v[8];
    if (whole)
      unpack_8(words[p], v);
    else
      one_by_one(v, x + kUnit * i);
    if constexpr (kBias != 0) {
      float bias[8];
      if (whole)
        unpack_8(load_frozen_16(args.bias.data + kUnit * i), bias);
      else
        one_by_one(bias, args.bias.data + kUnit * i);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) v[j] += bias[j];
    }
    change(row, i, v);
    float to[kEach];
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kEach; ++j) {
      if constexpr (kGated != 0)
        to[j] = activate<kActivation>(v[2 * j]) * v[2 * j + 1];
      else
        to[j] = activate<kActivation>(v[j]);
    }
    bf16* const y = args.to.y.data + row * args.to.y_stride + i;
    if (whole) {
      uint32_t pairs[kEach / 2];
      NODEWRIGHT_UNROLL
      for (int j = 0; j < kEach / 2; ++j) pairs[j] = round_pair(to[2 * j], to[2 * j + 1]);
      if constexpr (kGated != 0)
        *reinterpret_cast<uint64_t*>(y) = pairs[0] | static_cast<uint64_t>(pairs[1]) << 32;
      else
        store_16(y, {pairs[0], pairs[1], pairs[2], pairs[3]});
    } else {
      NODEWRIGHT_UNROLL
      for (int j = 0; j < kEach; ++j)
        if (i + j < args.outputs) y[j] = to_bf16(to[j]);
    }
  }
}

}  // namespace nodewright
