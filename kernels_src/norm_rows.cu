// y[m, :] = x[m, :] / rms(x[m]) * gain in fp32, rounded to bf16; with kNorm rms_one_plus * (1 + gain). Block m: row m;
// thread t: columns 8t to 8t + 7, then those 2048 further on.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/norm.h"
#include "kernels_src/norm_rows.h"

namespace nodewright {

NODEWRIGHT_DEVICE void load_8_floats(const float* from, float (&v)[8]) {
  const uint4 low = load_16(from), high = load_16(from + 4);
  v[0] = bits_to_float(low.x), v[1] = bits_to_float(low.y), v[2] = bits_to_float(low.z), v[3] = bits_to_float(low.w);
  v[4] = bits_to_float(high.x), v[5] = bits_to_float(high.y);
  v[6] = bits_to_float(high.z), v[7] = bits_to_float(high.w);
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(norm_rows, NormRows, kNormRowsThreads) {
  static_assert(kNorm != static_cast<int64_t>(Norm::layer), "a LayerNorm has a shift");
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  constexpr int kPass = static_cast<int>(kNormRowsThreads) * 8;
  release_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  const int cols = static_cast<int>(args.gain.count), stride = static_cast<int>(args.stride);
  if (row >= args.n_live.data[0]) return;
  const float* x = args.x.data + row * stride;
  bf16* y = args.y.data + row * stride;
  float squares = 0.0f, v[8];
  for (int i = static_cast<int>(threadIdx.x) * 8; i < cols; i += kPass) {
    load_8_floats(x + i, v);
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j)
      if (i + j < cols) squares = fmaf(v[j], v[j], squares);
  }
  squares = block_sum(squares, reinterpret_cast<float*>(shared_memory()));
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(cols) + args.eps);
  for (int i = static_cast<int>(threadIdx.x) * 8; i < stride; i += kPass) {
    load_8_floats(x + i, v);
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j)
      v[j] = i + j < cols ? v[j] * (scale * (kOffset + to_float(args.gain.data[i + j]))) : 0.0f;
    store_16(y + i, {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])});
  }
}
