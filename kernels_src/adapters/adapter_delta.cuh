// What a row's adapter adds to one output: B[output] . h, in fp32, from the first rank to the last.
#pragma once

#include "kernels_src/adapters/adapter_in.h"
#include "kernels_src/device/numeric.cuh"

namespace nodewright {

// `h`: the kRank values of the output's part. After the wait.
template <int64_t kOfRank>
NODEWRIGHT_DEVICE float adapter_delta(const bf16* b, const float* h) {
  static_assert(kOfRank % 8 == 0, "ranks are padded to whole loads");
  float sum = 0.0f;
  NODEWRIGHT_UNROLL_BY(2)
  for (int j = 0; j < static_cast<int>(kOfRank); j += 8) {
    float w[8];
    unpack_8(load_frozen_16(b + j), w);
    const float4 low = load_fp32_4(h + j), high = load_fp32_4(h + j + 4);
    sum = fmaf(w[0], low.x, sum), sum = fmaf(w[1], low.y, sum);
    sum = fmaf(w[2], low.z, sum), sum = fmaf(w[3], low.w, sum);
    sum = fmaf(w[4], high.x, sum), sum = fmaf(w[5], high.y, sum);
    sum = fmaf(w[6], high.z, sum), sum = fmaf(w[7], high.w, sum);
  }
  return sum;
}

// v + that of output `output`, one of `part` of `parts`; of a row without an adapter v, bit for bit.
template <int64_t kOfRank>
NODEWRIGHT_DEVICE float adapted(const AdapterIn& in, int64_t row, int output, int part, int parts, float v) {
  const int slot = in.ids.data[row];
  if (slot < 0) return v;
  return v + adapter_delta<kOfRank>(in.b.data + slot * in.slot_elements + output * kOfRank,
                                    in.h.data + (row * parts + part) * kOfRank);
}

}  // namespace nodewright
