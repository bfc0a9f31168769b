// Count: one thread counts a round and sets the condition.
#include "kernels_src/device/dialect.cuh"
#include "tests/graph/kernels/blend.h"

NODEWRIGHT_KERNEL(count, Count, kBlendThreads) {
  wait_for_inputs();
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  args.rounds.data[0] += 1u;
  set_condition(args.again, args.rounds.data[0] < args.limit ? 1u : 0u);
}
