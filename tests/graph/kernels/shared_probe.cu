// SharedProbe: one thread of each block.
#include "kernels_src/device/dialect.cuh"
#include "tests/graph/kernels/blend.h"

NODEWRIGHT_KERNEL(shared_probe, SharedProbe, kBlendThreads) {
  wait_for_inputs();
  if (threadIdx.x != 0 || blockIdx.x >= args.y.count) return;
  volatile uint32_t* last = reinterpret_cast<volatile uint32_t*>(shared_memory() + args.shared_bytes - 4);
  *last = blockIdx.x;
  args.y.data[blockIdx.x] = gridDim.x * 1000u + *last;
}
