// Accumulate with kFactor in the place of 31. Block b, thread t: element b * 64 + t.
#include "kernels_src/device/dialect.cuh"
#include "tests/graph/kernels/blend.h"

NODEWRIGHT_KERNEL(scaled, Accumulate, kBlendThreads) {
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kBlendThreads + threadIdx.x;
  release_dependents();
  wait_for_inputs();
  if (i >= args.y.count) return;
  args.y.data[i] = args.y.data[i] * static_cast<uint32_t>(kFactor) + args.x.data[i % args.x.count] + args.salt;
}
