// The end that stores the sum as it is: y[m, n] = sum.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/product/end/end.cuh"

namespace nodewright {

struct Store : End {
  template <class At, class Sum>
  NODEWRIGHT_DEVICE static void put(const RowsOut<float>& to, const At& at, Sum sum, bool, const Held&, Kept&) {
    *at.in(to.y.data, to.y_stride) = sum(0);
  }
};

}  // namespace nodewright
