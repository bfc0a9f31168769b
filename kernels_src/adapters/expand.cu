// y[m, n] += kScale * sum_j B[id[m]][n, j] * h[m, part(n), j], in fp32. Block (b, m): outputs 256 b on of row m, one a
// thread, whose row of B is on its way before the wait. A row without an adapter is left as it is.
#include "kernels_src/adapters/expand.h"
#include "kernels_src/product/end/adapter_delta.cuh"

NODEWRIGHT_KERNEL(expand, Expand, kExpandThreads) {
  constexpr int kWords = static_cast<int>(kAdapterRank / 8),
                kEarly = kWords <= 8 ? kWords : 0;  // more have no registers
  const int64_t row = blockIdx.y, n = static_cast<int64_t>(blockIdx.x) * kExpandThreads + threadIdx.x;
  const int live = load_settled(args.n_live.data), id = load_settled(args.adapter.ids.data + row);
  const int slot = row < live && n < args.outputs ? id : -1;  // rows from n_live on are undefined
  const bf16* const b = args.adapter.b.data + (slot < 0 ? 0 : slot * args.adapter.slot_elements + n * kAdapterRank);
  uint4 words[kEarly > 0 ? kEarly : 1];
  NODEWRIGHT_UNROLL
  for (int j = 0; j < kEarly; ++j) words[j] = slot < 0 ? uint4{0u, 0u, 0u, 0u} : load_frozen_16(b + 8 * j);
  release_dependents();
  wait_for_inputs();
  if (slot < 0) return;
  const int64_t part = n < args.second ? 0 : n < args.third ? 1 : 2;
  const float* const h = args.adapter.h.data + (row * args.parts + part) * kAdapterRank;
  float* const y = args.y.data + row * args.y_stride + n;
  const float before = *y;
  const float sum =
      kEarly > 0 ? adapter_sum<kAdapterRank>([&](int j) { return words[j]; }, h) : adapter_delta<kAdapterRank>(b, h);
  *y = before + scaled_by<kScale>(sum);
}
