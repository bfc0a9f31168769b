// What a row's LoRA adapter adds to one output of a product: B[output] . h, in fp32, dimension after dimension. kRank:
// the rank of every adapter, padded (the kernel's constant kAdapterRank).
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/product/end/adapter_in.h"

namespace nodewright {

// `word(j)` loads elements 8j to 8j + 7 of B's row; `h` has the kRank values of the output's part. Called after
// wait_for_inputs(). kAtOnce: how many words are loaded at once.
template <int64_t kRank, int kAtOnce = 8, class Word>
NODEWRIGHT_DEVICE float adapter_sum(Word word, const float* h) {
  static_assert(kRank % 8 == 0, "ranks are padded to whole loads");
  float sum = 0.0f;
  NODEWRIGHT_UNROLL_BY(kAtOnce)
  for (int j = 0; j < static_cast<int>(kRank); j += 8) {
    float w[8];
    unpack_8(word(j / 8), w);
    const float4 low = load_fp32_4(h + j), high = load_fp32_4(h + j + 4);
    sum = fmaf(w[0], low.x, sum), sum = fmaf(w[1], low.y, sum);
    sum = fmaf(w[2], low.z, sum), sum = fmaf(w[3], low.w, sum);
    sum = fmaf(w[4], high.x, sum), sum = fmaf(w[5], high.y, sum);
    sum = fmaf(w[6], high.z, sum), sum = fmaf(w[7], high.w, sum);
  }
  return sum;
}
template <int64_t kRank, int kAtOnce = 8>
NODEWRIGHT_DEVICE float adapter_delta(const bf16* b, const float* h) {
  return adapter_sum<kRank, kAtOnce>([b](int j) { return load_frozen_16(b + 8 * j); }, h);
}

// v plus what the row's adapter adds to output `output`, which is one of part `part` of `parts` parts of the matrix.
// For a row without an adapter it returns v, bit for bit.
template <int64_t kRank, int kAtOnce = 8>
NODEWRIGHT_DEVICE float with_adapter(const AdapterIn& in, int64_t row, int output, int part, int parts, float v) {
  const int slot = in.ids.data[row];
  if (slot < 0) return v;
  return v + adapter_delta<kRank, kAtOnce>(in.b.data + slot * in.slot_elements + output * kRank,
                                           in.h.data + (row * parts + part) * kRank);
}

}  // namespace nodewright
