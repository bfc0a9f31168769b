// y[m, n] += kScale * sum_j B[id[m]][n, j] * h[m, part(n), j], in fp32. Block (b, m): outputs 256 b on of row m, one a
// thread. A row without an adapter is left as it is.
#include "kernels_src/adapters/adapter_delta.cuh"
#include "kernels_src/adapters/expand.h"

NODEWRIGHT_KERNEL(expand, Expand, kExpandThreads) {
  const int64_t row = blockIdx.y, n = static_cast<int64_t>(blockIdx.x) * kExpandThreads + threadIdx.x;
  release_dependents();
  wait_for_inputs();
  if (row >= args.n_live.data[0] || n >= args.outputs) return;
  const int slot = args.adapter.ids.data[row];
  if (slot < 0) return;
  const int64_t part = n < args.second ? 0 : n < args.third ? 1 : 2;
  float* const y = args.y.data + row * args.y_stride + n;
  *y += scaled_by<kScale>(adapter_delta<kRank>(args.adapter.b.data + slot * args.adapter.slot_elements + n * kRank,
                                               args.adapter.h.data + (row * args.parts + part) * kRank));
}
