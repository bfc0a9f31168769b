// The source of a product by rows whose x is the fp32 residual: the kernel normalizes it first.
#pragma once

#include "kernels_src/product/rows.cuh"
#include "kernels_src/product/rows/normed_rows.cuh"

namespace nodewright {

struct Normed {
  template <class Args, class Before, class Store>
  NODEWRIGHT_DEVICE static void run(const Args& args, int unit, Before /*early*/, Store store) {
    project_normed(args, unit, store);
  }
};

}  // namespace nodewright
