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

// Calls use(quad, index, n) for every four logits of `count`, from `index` on, n of them there (4, but for the row's
// last): in a thread with ascending indices, thread t takes 4 t .. + 3 and on. Of kInFlight 16-byte loads at once,
// eight read a row of 128 k logits in microseconds; `use` is in the code as often, and code that one launch a step runs
// comes from the device's memory. `logits` is 16-byte aligned; what is not there is -infinity.
template <int kInFlight, class Use>
NODEWRIGHT_DEVICE void for_each_quad(const float* logits, int64_t count, Use use) {
  const int end = static_cast<int>(count), whole = end / 4 * 4, step = static_cast<int>(kLogitRowThreads) * 4;
  NODEWRIGHT_NO_UNROLL
  for (int base = static_cast<int>(threadIdx.x) * 4; base < end; base += kInFlight * step) {
    float4 v[kInFlight];
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const int i = base + j * step;
      if (i < whole) {
        v[j] = load_fp32_4(logits + i);
      } else {
        v[j].x = i < end ? logits[i] : -INFINITY;
        v[j].y = i + 1 < end ? logits[i + 1] : -INFINITY;
        v[j].z = i + 2 < end ? logits[i + 2] : -INFINITY;
        v[j].w = -INFINITY;
      }
    }
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kInFlight; ++j)
      if (const int i = base + j * step; i < end) use(v[j], i, min(4, end - i));
  }
}

// The same where `use` computes for longer than a load takes: it is in the code once, and one load is ahead of it.
template <class Use>
NODEWRIGHT_DEVICE void for_each_quad_in_turn(const float* logits, int64_t count, Use use) {
  const int end = static_cast<int>(count), step = static_cast<int>(kLogitRowThreads) * 4;
  const auto quad_at = [&](int i) {
    if (i + 4 <= end) return load_fp32_4(logits + i);
    return make_float4(i < end ? logits[i] : -INFINITY, i + 1 < end ? logits[i + 1] : -INFINITY,
                       i + 2 < end ? logits[i + 2] : -INFINITY, -INFINITY);
  };
  int i = static_cast<int>(threadIdx.x) * 4;
  float4 next = quad_at(i);
  NODEWRIGHT_NO_UNROLL
  for (; i < end; i += step) {
    const float4 quad = next;
    next = quad_at(i + step);
    use(quad, i, min(4, end - i));
  }
}

// The same of single logits: use(logit, index).
template <int kInFlight = 8, class Use>
NODEWRIGHT_DEVICE void for_each_logit(const float* logits, int64_t count, Use use) {
  for_each_quad<kInFlight>(logits, count, [&](float4 v, int i, int n) {
    use(v.x, i);
    if (n > 1) use(v.y, i + 1);
    if (n > 2) use(v.z, i + 2);
    if (n > 3) use(v.w, i + 3);
  });
}

}  // namespace nodewright
