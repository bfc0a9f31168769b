// logits[m, n] = cap * tanh(logits[m, n] / cap). Block (b, m): row m, elements 1024 b on, four a thread.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/sampling/cap_logits.h"

NODEWRIGHT_KERNEL(cap_logits, CapLogits, kCapLogitsThreads) {
  release_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.y, i = (static_cast<int64_t>(blockIdx.x) * kCapLogitsThreads + threadIdx.x) * 4;
  if (row >= args.n_live.data[0] || i >= args.vocab) return;
  float* const logits = args.logits.data + row * args.stride + i;
  if (i + 4 <= args.vocab) {
    const uint4 v = load_16(logits);
    store_16(
        logits,
        uint4{float_to_bits(capped_by<kCap>(bits_to_float(v.x))), float_to_bits(capped_by<kCap>(bits_to_float(v.y))),
              float_to_bits(capped_by<kCap>(bits_to_float(v.z))), float_to_bits(capped_by<kCap>(bits_to_float(v.w)))});
    return;
  }
  for (int64_t j = 0; i + j < args.vocab; ++j) logits[j] = capped_by<kCap>(logits[j]);
}
