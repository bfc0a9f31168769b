// Decide: one thread sets the condition.
#include "kernels_src/device/dialect.cuh"
#include "tests/graph/kernels/blend.h"

NODEWRIGHT_KERNEL(decide, Decide, kBlendThreads) {
  wait_for_inputs();
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  set_condition(args.condition, args.value.data[0] % args.modulus + args.base);
}
