// to[i] = from[i]. Thread t of the grid: word t.
#include "kernels_src/device/dialect.cuh"
#include "kernels_src/step/fetch_inputs.h"

NODEWRIGHT_KERNEL(fetch_inputs, FetchInputs, kFetchInputsThreads) {
  release_dependents();
  wait_for_inputs();
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kFetchInputsThreads + threadIdx.x;
  if (i < args.from.count) args.to.data[i] = args.from.data[i];
}
