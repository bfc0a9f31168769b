// The end Of for rows that may have LoRA adapters: what the row's adapter adds to an output joins the sum before Of
// gets it. kAtOnce: 16-byte words of B that a thread loads at once (adapter_delta.cuh).
#pragma once

#include "kernels_src/product/end/adapter_delta.cuh"
#include "kernels_src/product/end/end.cuh"

namespace nodewright {

template <class Of, int64_t kRank, int kAtOnce = 8>
struct Adapted : Of {
  static constexpr bool kAdjusts = true;
  NODEWRIGHT_DEVICE static float adjusted(int64_t row, int output, int part, float sum, const AdapterIn& adapter) {
    return Of::adjusted(row, output, part, with_adapter<kRank, kAtOnce>(adapter, row, output, part, Of::kUnit, sum));
  }
};

}  // namespace nodewright
