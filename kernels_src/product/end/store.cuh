// The end that stores the sum as it is: y[m, n] = sum.
#pragma once

#include "kernels_src/product/end/end.cuh"

namespace nodewright {

struct Store : End {
  template <class Args, class At, class Sum>
  NODEWRIGHT_DEVICE static void put(const Args& args, const At& at, Sum sum, bool, const Held&, Kept&) {
    *at.in(args.y.data, args.y_stride) = sum(0);
  }
};

}  // namespace nodewright
