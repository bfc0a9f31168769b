// y[m, :] = x[rows[m], :], or x + joining / rms(joining) * post_gain, all in fp32; with kNorm rms_one_plus
// * (1 + post_gain). With kLeavesGained next.gained[m, :] = y[m, :] * next.gain, next.squares[0, m] = the sum of y[m,
// :] squared. Block m: row m; thread t: columns t, t + 256, ...
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/gather_residual.h"
#include "kernels_src/residual/norm.h"

NODEWRIGHT_KERNEL(gather_residual, GatherResidual, kGatherResidualThreads) {
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  release_dependents();
  wait_for_inputs();
  const int m = static_cast<int>(blockIdx.x), stride = static_cast<int>(args.stride);
  if (m >= args.n_live.data[0]) return;
  const int64_t row = args.rows.data[m] * args.stride;
  const float* x = args.from.data + args.places.data[0] + row;
  float* y = args.y.data + m * args.stride;
  const auto each = [&](int columns, auto work) {
    for (int i = static_cast<int>(threadIdx.x); i < columns; i += static_cast<int>(kGatherResidualThreads)) work(i);
  };
  if constexpr (kPostNorm != 0) {
    if (args.places.data[1] >= 0) {
      const float* joining = args.from.data + args.places.data[1] + row;
      const int cols = static_cast<int>(args.post_gain.count);
      float squares = 0.0f;
      each(cols, [&](int i) { squares = fmaf(joining[i], joining[i], squares); });
      squares = block_sum(squares, reinterpret_cast<float*>(shared_memory()));
      const float scale = 1.0f / sqrtf(squares / static_cast<float>(cols) + args.eps);
      each(stride, [&](int i) {
        y[i] = i < cols ? fmaf(joining[i], scale * (kOffset + to_float(args.post_gain.data[i])), x[i]) : 0.0f;
      });
      return;
    }
  }
  if constexpr (kLeavesGained != 0) {
    float squares = 0.0f;
    each(stride, [&](int i) {
      y[i] = x[i];
      args.next.gained.data[m * args.stride + i] = to_bf16(x[i] * to_float(args.next.gain.data[i]));
      squares = fmaf(x[i], x[i], squares);
    });
    squares = block_sum(squares, reinterpret_cast<float*>(shared_memory()));
    if (threadIdx.x == 0) args.next.squares.data[m] = squares;
    return;
  }
  each(stride, [&](int i) { y[i] = x[i]; });
}
