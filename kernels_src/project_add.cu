// residual[m, n] += sum_k x[m, k] * W[n, k]. Block (b, t): outputs range b, rows t * kTile .. + kTile - 1.
#include "kernels_src/device/matvec.cuh"
#include "kernels_src/project_add.h"

NODEWRIGHT_KERNEL(project_add, ProjectAdd, kThreads) {
  float* partial = reinterpret_cast<float*>(shared_memory());
  const OutputRange range = block_outputs(args.outputs, 1);
  WeightBatch batch;
  request_first_batch(batch, args.weight.data, range);
  release_dependents();
  wait_for_inputs();

  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t live = kSingleRow != 0 ? 1 : args.n_live.data[0] - first_row;
  InputSlice slice;
  load_slice(slice, args.x.data + first_row * args.x_stride, args.x_stride);
  stream_weights(args.weight.data, range, batch, slice, partial, [&](int segment, int rows, auto sum) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * kTile; i += static_cast<int>(kThreads)) {
      const int r = i % rows, m = i / rows;
      if (m < live) args.residual.data[(first_row + m) * args.residual_stride + segment + r] += sum(r, m);
    }
  });
}
