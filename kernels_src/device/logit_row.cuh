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

// Calls use(logit, index) for every logit of the row, in a thread with ascending indices: thread t takes 4 t .. + 3 and
// on. Of kInFlight 16-byte loads at once, eight read a row of 128 k logits in microseconds; `use` is in the code four
// times as often, and code that one launch a step runs comes from the device's memory. `logits` is 16-byte aligned.
template <int kInFlight = 8, class Use>
NODEWRIGHT_DEVICE void for_each_logit(const float* logits, int64_t vocab, Use use) {
  const int count = static_cast<int>(vocab), whole = count / 4 * 4, step = static_cast<int>(kLogitRowThreads) * 4;
  NODEWRIGHT_NO_UNROLL
  for (int base = static_cast<int>(threadIdx.x) * 4; base < whole; base += kInFlight * step) {
    uint4 v[kInFlight];
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kInFlight; ++j)
      if (base + j * step < whole) v[j] = load_16(logits + base + j * step);
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const int i = base + j * step;
      if (i >= whole) break;
      use(bits_to_float(v[j].x), i);
      use(bits_to_float(v[j].y), i + 1);
      use(bits_to_float(v[j].z), i + 2);
      use(bits_to_float(v[j].w), i + 3);
    }
  }
  if (const int i = whole + static_cast<int>(threadIdx.x); i < count) use(logits[i], i);
}

}  // namespace nodewright
