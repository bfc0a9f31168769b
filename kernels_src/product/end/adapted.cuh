// An end of rows that may have adapters: each sum with what its row's adapter adds to it. kAtOnce as in
// adapters/adapter_delta.cuh.
#pragma once

#include "kernels_src/product/end/adapter_delta.cuh"
#include "kernels_src/product/end/end.cuh"

namespace nodewright {

template <class Of, int64_t kOfRank, int kAtOnce = 8>
struct Adapted : Of {
  static constexpr bool kAdapts = true;
  template <class Args>
  NODEWRIGHT_DEVICE static float own(const Args& args, int64_t row, int output, int part, float sum) {
    return adapted<kOfRank, kAtOnce>(args.adapter, row, output, part, Of::kUnit, sum);
  }
};

}  // namespace nodewright
