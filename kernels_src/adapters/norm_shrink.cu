// h[m, r] = s * sum_k A[id[m]][r, k] * norm(x[m])[k], in fp32, beside the product that norms x for itself. Block (b,
// m): a range of ranks, row m.
#include "kernels_src/adapters/shrink.h"
#include "kernels_src/adapters/shrink_rows.cuh"
#include "kernels_src/product/rows/normed_rows.cuh"

NODEWRIGHT_KERNEL(norm_shrink, NormShrink, kThreads) {
  NormSlice norm;
  shrink_row<InputSlice>(
      args, [&] { load_norm(norm, args.from); },
      [&](InputSlice& slice, int64_t row) {
        float* const partial = reinterpret_cast<float*>(shared_memory());
        load_fp32_slice(slice, args.from.x.data + row * kStride);
        if constexpr (kPostNorm != 0) add_projected(slice, norm, args.from, row, 1, partial);
        norm_slice(slice, norm, args.from.eps, partial + kSegment * kTile * kWarps);
      });
}
