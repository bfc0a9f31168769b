// y[i] = a * x[i] + y[i]. Block b, thread t: element b * 256 + t.
#include "kernels_src/device/dialect.cuh"
#include "kernels_src/saxpy.h"

NODEWRIGHT_KERNEL(saxpy, Saxpy, kSaxpyThreads) {
  release_dependents();
  wait_for_inputs();
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kSaxpyThreads + threadIdx.x;
  if (i >= args.y.count || i >= args.x.count) return;
  args.y.data[i] = args.a * args.x.data[i] + args.y.data[i];
}
