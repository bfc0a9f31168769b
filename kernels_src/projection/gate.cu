// y[m, i] = f(x[m, 2i]) * x[m, 2i + 1] in fp32, rounded to bf16. Block (b, m): row m, elements 1024 b on, four a
// thread. f: kActivation.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/projection/activation.cuh"
#include "kernels_src/projection/gate.h"

NODEWRIGHT_KERNEL(gate, Gate, kGateThreads) {
  release_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.y, i = (static_cast<int64_t>(blockIdx.x) * kGateThreads + threadIdx.x) * 4;
  if (i >= args.outputs) return;
  float v[8];
  unpack_8(load_16(args.x.data + row * args.x_stride + 2 * i), v);
  if (row >= args.n_live.data[0]) return;  // not before: the loads would follow each other
  bf16* y = args.y.data + row * args.y_stride + i;
  NODEWRIGHT_UNROLL
  for (int j = 0; j < 4; ++j)
    if (i + j < args.outputs) y[j] = to_bf16(activate(v[2 * j]) * v[2 * j + 1]);
}
