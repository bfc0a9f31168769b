// mix, computed kMixAgain times over: every block takes longer, and the result is the same.
#include "kernels_src/device/dialect.cuh"
#include "tests/graph/kernels/mix.h"

NODEWRIGHT_KERNEL(slow_mix, Mix, kMixThreads) {
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kMixThreads + threadIdx.x;
  const float gain = args.gain.count == 0 ? 0.0f : args.gain.data[i % args.gain.count];
  release_dependents();
  wait_for_inputs();
  if (i >= args.y.count) return;
  float sum = 0.0f;
  for (uint64_t again = 0; again < kMixAgain; ++again) {  // each turn needs the one before it
    const uint64_t offset = sum == -12345.0f ? 1 : 0;
    sum = args.scale * args.left.data[(i + offset) % args.left.count] + args.right.data[i % args.right.count] + gain;
  }
  args.y.data[i] = sum;
}
