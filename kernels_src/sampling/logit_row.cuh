// One row of logits read by one block of kLogitRowThreads threads: every element once, and the best of them.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/sampling/best_token.cuh"
#include "kernels_src/sampling/logit_row.h"

namespace nodewright {

// Order-preserving image of a float: a < b exactly when key(a) < key(b), no NaN. Adding +0 turns -0 into +0.
NODEWRIGHT_DEVICE uint32_t ordered_key(float v) {
  const uint32_t bits = float_to_bits(v + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Less than four logits from i on, before `end`; what is not there is -infinity.
NODEWRIGHT_DEVICE float4 quad_at_end(const float* logits, int i, int end) {
  return make_float4(i < end ? logits[i] : -INFINITY, i + 1 < end ? logits[i + 1] : -INFINITY,
                     i + 2 < end ? logits[i + 2] : -INFINITY, -INFINITY);
}

// Calls use(quad, index, n) for every four logits of `count`, from `index` on, n of them there (4, but for the row's
// last): in a thread with ascending indices, thread t takes 4 t .. + 3 and on. Four loads are made at once, and `use`
// is in the code once: code that one launch a step runs comes from the device's memory. `logits` is 16-byte aligned;
// what is not there is -infinity. With kWholeWarps all lanes of a warp make the calls that the first one makes.
template <bool kWholeWarps = false, class Use>
NODEWRIGHT_DEVICE void for_each_quad(const float* logits, int64_t count, Use use) {
  const int end = static_cast<int>(count), step = static_cast<int>(kLogitRowThreads) * 4;
  const int end_of_lane = end + (kWholeWarps ? static_cast<int>(threadIdx.x % 32) * 4 : 0);
  const auto quad_at = [&](int i) {
    return i + 4 <= end ? load_fp32_4(logits + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  };
  NODEWRIGHT_NO_UNROLL
  for (int base = static_cast<int>(threadIdx.x) * 4; base < end_of_lane; base += 4 * step) {
    float4 first = quad_at(base), second = quad_at(base + step), third = quad_at(base + 2 * step),
           fourth = quad_at(base + 3 * step);
    NODEWRIGHT_NO_UNROLL
    for (int i = base; i < min(end_of_lane, base + 4 * step); i += step) {
      if (i + 4 > end) first = quad_at_end(logits, i, end);
      use(first, i, min(4, end - i));
      first = second, second = third, third = fourth;
    }
  }
}

// The same of single logits: use(logit, index).
template <class Use>
NODEWRIGHT_DEVICE void for_each_logit(const float* logits, int64_t count, Use use) {
  for_each_quad(logits, count, [&](float4 v, int i, int n) {
    use(v.x, i);
    if (n > 1) use(v.y, i + 1);
    if (n > 2) use(v.z, i + 2);
    if (n > 3) use(v.w, i + 3);
  });
}

}  // namespace nodewright
