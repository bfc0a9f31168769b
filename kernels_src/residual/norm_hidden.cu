// y[m, :] = x[m, :] / rms(x[m]) * gain, all in fp32; with kNorm rms_one_plus * (1 + gain), with layer the mean is
// subtracted first and the shift added last. With kPostNorm x + norm(projected) * post_gain stands for x. Block m: row
// m; thread t: columns t, t + 256, ...
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/norm.h"
#include "kernels_src/residual/norm_hidden.h"

NODEWRIGHT_KERNEL(norm_hidden, NormHidden, kNormHiddenThreads) {
  constexpr bool kCentred = kNorm == static_cast<int64_t>(Norm::layer);
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  release_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.x), cols = static_cast<int>(args.from.gain.count);
  if (row >= args.n_live.data[0]) return;
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  const float* x = args.from.x.data + row * args.stride;
  float* y = args.y.data + static_cast<int64_t>(row) * cols;
  const auto each = [&](auto work) {
    for (int i = static_cast<int>(threadIdx.x); i < cols; i += static_cast<int>(kNormHiddenThreads)) work(i);
  };
  float post_scale = 0.0f;
  if constexpr (kPostNorm != 0) {
    const float* projected = args.from.projected.data + row * args.stride;
    each([&](int i) { post_scale = fmaf(projected[i], projected[i], post_scale); });
    post_scale = 1.0f / sqrtf(block_sum(post_scale, scratch) / static_cast<float>(cols) + args.from.eps);
  }
  const auto at = [&](int i) {
    if constexpr (kPostNorm != 0)
      return fmaf(args.from.projected.data[row * args.stride + i],
                  post_scale * (kOffset + to_float(args.from.post_gain.data[i])), x[i]);
    return x[i];
  };
  float mean = 0.0f, squares = 0.0f;
  if constexpr (kCentred) {
    each([&](int i) { mean += at(i); });
    mean = block_sum(mean, scratch) / static_cast<float>(cols);
  }
  each([&](int i) { squares = fmaf(at(i) - mean, at(i) - mean, squares); });
  squares = block_sum(squares, scratch);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(cols) + args.from.eps);
  each([&](int i) {
    float v = (at(i) - mean) * (scale * (kOffset + to_float(args.from.gain.data[i])));
    if constexpr (kCentred) v += to_float(args.from.shift.data[i]);
    y[i] = v;
  });
}
