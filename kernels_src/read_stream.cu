// Every 16-byte word once, four in flight a thread, grid-strided.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/read_stream.h"

NODEWRIGHT_KERNEL(read_stream, ReadStream, kReadStreamThreads) {
  wait_for_inputs();
  const int64_t words = static_cast<int64_t>(args.data.count / 4),
                stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const uint32_t* data = args.data.data;
  uint32_t sum = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i + 3 * stride < words;
       i += 4 * stride) {
    uint4 v[4];
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 4; ++j) v[j] = load_frozen_16(data + (i + j * stride) * 4);
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 4; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x9e3779b9u) args.sum.data[0] = sum;
}
