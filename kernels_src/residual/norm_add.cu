// residual[m, :] += x[m, :] / rms(x[m]) * gain, all in fp32; with kNorm rms_one_plus * (1 + gain), with kBias of x +
// bias instead of x. Block m: row m; thread t: columns t, t + 256, ...
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/norm.h"
#include "kernels_src/residual/norm_add.h"

NODEWRIGHT_KERNEL(norm_add, NormAdd, kNormAddThreads) {
  static_assert(kNorm != static_cast<int64_t>(Norm::layer), "no family norms so after a block");
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  release_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.x), cols = static_cast<int>(args.gain.count);
  if (row >= args.n_live.data[0]) return;
  const float* x = args.x.data + row * args.stride;
  float* residual = args.residual.data + row * args.stride;
  const auto at = [&](int i) {
    if constexpr (kBias != 0) return x[i] + to_float(args.bias.data[i]);
    return x[i];
  };
  float squares = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += static_cast<int>(kNormAddThreads))
    squares = fmaf(at(i), at(i), squares);
  squares = block_sum(squares, reinterpret_cast<float*>(shared_memory()));
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(cols) + args.eps);
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += static_cast<int>(kNormAddThreads))
    residual[i] = fmaf(at(i), scale * (kOffset + to_float(args.gain.data[i])), residual[i]);
}
