// h[m, r] = s * sum_k A[id[m]][r, k] * x[m, k], in fp32. Block (b, m): a range of ranks, row m.
#include "kernels_src/adapters/shrink.h"
#include "kernels_src/adapters/shrink_rows.cuh"

NODEWRIGHT_KERNEL(shrink, Shrink, kThreads) {
  shrink_row<RowSlice>(
      args, [] {},
      [&](RowSlice& slice, int64_t row) {
        load_slice(slice, args.from.x.data + row * args.from.x_stride, args.from.x_stride);
      });
}
