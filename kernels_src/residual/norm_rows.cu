// y[m, :] = x[m, :] / rms(x[m]) * gain in fp32, rounded to bf16; with kNorm rms_one_plus * (1 + gain), with none x,
// with layer (x[m, :] - mean(x[m])) / deviation(x[m]) * gain + shift. Block m: row m; thread t: columns 8t to 8t + 7,
// then those 2048 further on.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/norm.h"
#include "kernels_src/residual/norm_rows.h"

namespace nodewright {

NODEWRIGHT_DEVICE void load_8_floats(const float* from, float (&v)[8]) {
  const uint4 low = load_16(from), high = load_16(from + 4);
  v[0] = bits_to_float(low.x), v[1] = bits_to_float(low.y), v[2] = bits_to_float(low.z), v[3] = bits_to_float(low.w);
  v[4] = bits_to_float(high.x), v[5] = bits_to_float(high.y);
  v[6] = bits_to_float(high.z), v[7] = bits_to_float(high.w);
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(norm_rows, NormRows, kNormRowsThreads) {
  constexpr bool kLayerNorm = kNorm == static_cast<int64_t>(Norm::layer);
  constexpr bool kBare = kNorm == static_cast<int64_t>(Norm::none);
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  constexpr int kColumns = static_cast<int>(kCols), kStride = (kColumns + 7) / 8 * 8;
  constexpr int kPass = static_cast<int>(kNormRowsThreads) * 8, kPasses = (kStride + kPass - 1) / kPass;
  const int64_t row = blockIdx.x;
  const auto column = [](int pass) { return static_cast<int>(threadIdx.x) * 8 + pass * kPass; };
  // All that the block reads is asked for before it needs any of it: it has nothing else to do meanwhile.
  uint4 gain[kPasses], shift[kLayerNorm ? kPasses : 1];
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p) {
    gain[p] = uint4{0u, 0u, 0u, 0u};
    if (!kBare && column(p) + 8 <= kColumns) gain[p] = load_frozen_16(args.gain.data + column(p));
    if constexpr (kLayerNorm) {
      shift[p] = uint4{0u, 0u, 0u, 0u};
      if (column(p) + 8 <= kColumns) shift[p] = load_frozen_16(args.shift.data + column(p));
    }
  }
  release_dependents();
  wait_for_inputs();
  const float* x = args.x.data + row * kStride;
  float v[kPasses][8], squares = 0.0f;
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p)
    if (column(p) < kStride) load_8_floats(x + column(p), v[p]);
  if (row >= args.n_live.data[0]) return;
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  if constexpr (kLayerNorm) {
    float mean = 0.0f;
    NODEWRIGHT_UNROLL
    for (int p = 0; p < kPasses; ++p) {
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j)
        if (column(p) + j < kColumns) mean += v[p][j];
    }
    mean = block_sum(mean, scratch) / static_cast<float>(kColumns);
    NODEWRIGHT_UNROLL
    for (int p = 0; p < kPasses; ++p) {
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) v[p][j] -= mean;
    }
  }
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p) {
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j)
      if (column(p) + j < kColumns) squares = fmaf(v[p][j], v[p][j], squares);
  }
  squares = block_sum(squares, scratch);
  const float scale = kBare ? 1.0f : 1.0f / sqrtf(squares / static_cast<float>(kColumns) + args.eps);
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p) {
    if (column(p) >= kStride) continue;
    float of_gain[8], of_shift[8] = {};
    unpack_8(gain[p], of_gain);
    if constexpr (kLayerNorm) unpack_8(shift[p], of_shift);
    if (!kBare && column(p) + 8 > kColumns)
      for (int j = 0; column(p) + j < kColumns; ++j) {
        of_gain[j] = to_float(args.gain.data[column(p) + j]);
        if constexpr (kLayerNorm) of_shift[j] = to_float(args.shift.data[column(p) + j]);
      }
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j) {
      float normed = v[p][j] * (kBare ? 1.0f : scale * (kOffset + of_gain[j]));
      if constexpr (kLayerNorm) normed += of_shift[j];
      v[p][j] = column(p) + j < kColumns ? normed : 0.0f;
    }
    store_16(args.y.data + row * kStride + column(p), {pack_bf16(v[p][0], v[p][1]), pack_bf16(v[p][2], v[p][3]),
                                                       pack_bf16(v[p][4], v[p][5]), pack_bf16(v[p][6], v[p][7])});
  }
}
