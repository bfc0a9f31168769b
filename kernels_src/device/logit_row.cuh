// One row of logits read by one block of kLogitRowThreads threads: every element once, and the best of them.
#pragma once

#include "kernels_src/device/best_token.cuh"
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/logit_row.h"

namespace nodewright {

// Order-preserving image of a float: a < b exactly when key(a) < key(b), no NaN. Adding +0 turns -0 into +0.
NODEWRIGHT_DEVICE uint32_t ordered_key(float v) {
  const uint32_t bits = float_to_bits(v + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Calls use(logit, index) for every logit of the row: thread t takes indices 4 t .. + 3 and on, eight 16-byte loads in
// flight, so that one block reads a row of 128 k logits in microseconds. `logits` is 16-byte aligned.
template <class Use>
NODEWRIGHT_DEVICE void for_each_logit(const float* logits, int64_t vocab, Use use) {
  constexpr int kInFlight = 8;
  const int count = static_cast<int>(vocab), step = static_cast<int>(kLogitRowThreads) * 4;
  for (int base = static_cast<int>(threadIdx.x) * 4; base < count; base += kInFlight * step) {
    uint4 v[kInFlight];
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const int i = base + j * step;
      if (i + 4 <= count) v[j] = load_16(logits + i);
    }
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const int i = base + j * step;
      if (i + 4 <= count) {
        use(bits_to_float(v[j].x), i);
        use(bits_to_float(v[j].y), i + 1);
        use(bits_to_float(v[j].z), i + 2);
        use(bits_to_float(v[j].w), i + 3);
      } else {
        for (int k = i; k < count; ++k) use(logits[k], k);
      }
    }
  }
}

}  // namespace nodewright
