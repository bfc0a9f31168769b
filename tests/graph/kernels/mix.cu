// y[i] = scale * left[i % lefts] + right[i % rights] + gain[i % gains]. Block b, thread t: element b * 64 + t.
#include "kernels_src/device/dialect.cuh"
#include "tests/graph/kernels/mix.h"

NODEWRIGHT_KERNEL(mix, Mix, kMixThreads) {
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kMixThreads + threadIdx.x;
  const float gain = args.gain.count == 0 ? 0.0f : args.gain.data[i % args.gain.count];
  release_dependents();
  wait_for_inputs();
  if (i >= args.y.count) return;
  args.y.data[i] = args.scale * args.left.data[i % args.left.count] + args.right.data[i % args.right.count] + gain;
}
