// The end of the feed-forward block's first product, in bf16: y[m, i] = f(g) * u, where g and u are the sums of outputs
// 2i and 2i + 1. Without a gate y[m, i] = f(sum of output i). kFunction, an Activation, names f.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/elementwise/activation.cuh"
#include "kernels_src/product/end/end.cuh"

namespace nodewright {

template <bool kHasGate, int64_t kFunction>
struct GateUp : End {
  static constexpr int kUnit = kHasGate ? 2 : 1;

  template <class At, class Sum>
  NODEWRIGHT_DEVICE static void put(const RowsOut<bf16>& to, const At& at, Sum sum, bool, const Held&, Kept&) {
    float value = activate<kFunction>(sum(0));
    if constexpr (kHasGate) value *= sum(1);
    *at.in(to.y.data, to.y_stride) = to_bf16(value);
  }
};

}  // namespace nodewright
