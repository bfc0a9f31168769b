// y[m, n] = sum_k rms_norm(x[m])[k] * W[n, k], fp32 out. Block (b, t): outputs range b, rows t * kTile .. + kTile - 1.
#include "kernels_src/norm_project.h"

#include "kernels_src/device/matvec.cuh"

NODEWRIGHT_KERNEL(norm_project, NormProject, kThreads) {
  float* partial = reinterpret_cast<float*>(shared_memory());
  float* scratch = partial + kSegment * kTile * kWarps;
  const OutputRange range = block_outputs(args.outputs, 1);
  WeightBatch batch;
  GainSlice gains;
  request_first_batch(batch, args.weight.data, range);
  load_gains(gains, args.gain.data);
  release_dependents();
  wait_for_inputs();

  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t live = kRows == 1 ? 1 : args.n_live.data[0] - first_row;
  InputSlice slice;
  load_normed_slice(slice, gains, args.x.data + first_row * kStride, kStride, args.eps, scratch);
  stream_weights(args.weight.data, range, batch, slice, partial, [&](int segment, int rows, auto sum) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * kTile; i += static_cast<int>(kThreads)) {
      const int r = i % rows, m = i / rows;
      if (m < live) args.y.data[(first_row + m) * args.y_stride + segment + r] = sum(r, m);
    }
  });
}
