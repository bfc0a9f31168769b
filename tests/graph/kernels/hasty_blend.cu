// Blend without the wait: correct with full edges only.
#include "kernels_src/device/dialect.cuh"
#include "tests/graph/kernels/blend.h"

NODEWRIGHT_KERNEL(hasty_blend, Blend, kBlendThreads) {
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kBlendThreads + threadIdx.x;
  if (i >= args.y.count) return;
  const uint32_t key = args.key.count == 0 ? 0u : args.key.data[i % args.key.count];
  args.y.data[i] =
      (args.a.data[i % args.a.count] * 1664525u + args.b.data[i % args.b.count] * 22695477u + key) ^ args.salt;
}
