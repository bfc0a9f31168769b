// y[m, :] = x[m, :] / rms(x[m]) * gain in fp32, rounded to bf16; with kNorm rms_one_plus * (1 + gain), with none x,
// with layer (x[m, :] - mean(x[m])) / deviation(x[m]) * gain + shift. With kPostNorm x + norm(projected) * post_gain
// stands for x, and goes to x_next. Block m: row m; thread t: columns 8t to 8t + 7, then those 2048 further on.
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
NODEWRIGHT_DEVICE void store_8_floats(float* to, const float (&v)[8]) {
  store_16(to, {float_to_bits(v[0]), float_to_bits(v[1]), float_to_bits(v[2]), float_to_bits(v[3])});
  store_16(to + 4, {float_to_bits(v[4]), float_to_bits(v[5]), float_to_bits(v[6]), float_to_bits(v[7])});
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
  uint4 gain[kPasses], shift[kLayerNorm ? kPasses : 1], post_gain[kPostNorm != 0 ? kPasses : 1];
  const auto request = [&](uint4& words, const bf16* from, int p) {
    words = column(p) + 8 <= kColumns ? load_frozen_16(from + column(p)) : uint4{0u, 0u, 0u, 0u};
  };
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p) {
    if constexpr (!kBare) request(gain[p], args.from.gain.data, p);
    if constexpr (kLayerNorm) request(shift[p], args.from.shift.data, p);
    if constexpr (kPostNorm != 0) request(post_gain[p], args.from.post_gain.data, p);
  }
  // The columns of a pass in floats; those of a row's end one by one.
  const auto floats_of = [&](float(&v)[8], const uint4& words, const bf16* from, int p) {
    unpack_8(words, v);
    for (int j = 0; column(p) + 8 > kColumns && column(p) + j < kColumns; ++j) v[j] = to_float(from[column(p) + j]);
  };
  release_dependents();
  wait_for_inputs();
  const float* x = args.from.x.data + row * kStride;
  float v[kPasses][8], squares = 0.0f;
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p)
    if (column(p) < kStride) load_8_floats(x + column(p), v[p]);
  float added[kPostNorm != 0 ? kPasses : 1][8];
  if constexpr (kPostNorm != 0) {
    const float* projected = args.from.projected.data + row * kStride;
    NODEWRIGHT_UNROLL
    for (int p = 0; p < kPasses; ++p) {
      if (column(p) + 8 <= kColumns) {
        load_8_floats(projected + column(p), added[p]);
      } else {
        NODEWRIGHT_UNROLL
        for (int j = 0; j < 8; ++j) added[p][j] = column(p) + j < kColumns ? projected[column(p) + j] : 0.0f;
      }
    }
  }
  if (row >= args.n_live.data[0]) return;
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  if constexpr (kPostNorm != 0) {
    NODEWRIGHT_UNROLL
    for (int p = 0; p < kPasses; ++p) {
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) squares = fmaf(added[p][j], added[p][j], squares);
    }
    const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / static_cast<float>(kColumns) + args.from.eps);
    NODEWRIGHT_UNROLL
    for (int p = 0; p < kPasses; ++p) {
      if (column(p) >= kStride) continue;
      float of_gain[8];
      floats_of(of_gain, post_gain[p], args.from.post_gain.data, p);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) v[p][j] = fmaf(added[p][j], scale * (kOffset + of_gain[j]), v[p][j]);
      if (args.from.x_next.count > 0) store_8_floats(args.from.x_next.data + row * kStride + column(p), v[p]);
    }
    squares = 0.0f;
  }
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
  const float scale = kBare ? 1.0f : 1.0f / sqrtf(squares / static_cast<float>(kColumns) + args.from.eps);
  NODEWRIGHT_UNROLL
  for (int p = 0; p < kPasses; ++p) {
    if (column(p) >= kStride) continue;
    float of_gain[8] = {}, of_shift[8] = {};
    if constexpr (!kBare) floats_of(of_gain, gain[p], args.from.gain.data, p);
    if constexpr (kLayerNorm) floats_of(of_shift, shift[p], args.from.shift.data, p);
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
