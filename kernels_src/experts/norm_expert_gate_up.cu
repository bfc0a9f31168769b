// y[m, j, i] = f(h[m] . W[e, 2i]) * (h[m] . W[e, 2i + 1]), e = experts[m, j], h = norm(x), in fp32. Block (b, m): a
// range of the pairs of rows of all experts of row m, dealt to its warps in turn. The norm is done before the experts
// are known.
#include "kernels_src/device/output_range.cuh"
#include "kernels_src/elementwise/activation.cuh"
#include "kernels_src/experts/expert_halves.cuh"
#include "kernels_src/experts/norm_expert_gate_up.h"
#include "kernels_src/residual/norm.h"

namespace nodewright {

// h = norm(row), in shared memory.
template <class Args>
NODEWRIGHT_DEVICE void norm_row(const Args& args, const float* row, float* h, float* scratch) {
  constexpr bool kBare = kNorm == static_cast<int64_t>(Norm::none);
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  static_assert(kNorm != static_cast<int64_t>(Norm::layer), "no family of mixtures has LayerNorms");
  float squares = 0.0f;
  for (int at = static_cast<int>(threadIdx.x) * 4; at < kStride; at += static_cast<int>(kExpertRowsThreads) * 4) {
    const uint4 v = load_settled_16(row + at);
    store_16(h + at, v);
    const float x[4] = {bits_to_float(v.x), bits_to_float(v.y), bits_to_float(v.z), bits_to_float(v.w)};
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 4; ++i) squares = fmaf(x[i], x[i], squares);
  }
  if constexpr (kBare) return;
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / static_cast<float>(kCols) + args.eps);
  for (int at = static_cast<int>(threadIdx.x) * 4; at < kStride; at += static_cast<int>(kExpertRowsThreads) * 4) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 4; ++i)
      if (at + i < kCols) h[at + i] *= scale * (kOffset + to_float(args.gain.data[at + i]));
  }
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(norm_expert_gate_up, NormExpertGateUp, kExpertRowsThreads) {
  constexpr int kUnits = static_cast<int>(kOutputs / 2), kWarps = static_cast<int>(kExpertRowsThreads / 32);
  auto* const h = reinterpret_cast<float*>(shared_memory());
  float* const scratch = h + kStride;  // 32 floats, before x in another form
  const int64_t row = blockIdx.y;
  norm_row(args, args.x.data + row * kStride, h, scratch);
  ExpertRows<2, 1> stream(args.w.weight.data, 0);
  auto x = expert_x(
      stream,
      [h](int column, float(&v)[8]) {
        const float4 low = load_fp32_4(h + column), high = load_fp32_4(h + column + 4);
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
      },
      reinterpret_cast<unsigned char*>(scratch + 32), 0);
  if constexpr (decltype(x)::kStaged) {
    __syncthreads();
    x.stage(stream, warp_of_block(), kWarps, [&](float v) { return block_max(v, scratch); });
  }
  wait_for_inputs();
  release_behind_wait();  // not before: the experts are settled for the kernel that multiplies what this one leaves
  __syncthreads();
  if (kSingleRow == 0 && row >= args.n_live.data[0]) return;
  const OutputRange range = block_outputs(kChosen * kUnits);
  const int first = range.first + warp_of_block();
  const int groups = first < range.last ? (range.last - first + kWarps - 1) / kWarps : 0;
  const auto group_at = [&](int g, int& rows) {
    const int unit = first + g * kWarps, j = unit / kUnits;
    rows = 2;
    const int64_t of_all = valid_expert(args.experts.data[row * kChosen + j]) * kOutputs + 2 * (unit - j * kUnits);
    return ExpertGroup{stored(args.w) + of_all * kRowElements, static_cast<int>(of_all)};
  };
  if (groups > 0) stream.start(groups, group_at);
  stream.run(groups, group_at, x, [&](int g, float(&sums)[2]) {
    warp_sums(sums);
    const int unit = first + g * kWarps, j = unit / kUnits;
    if (lane_of_warp() == 0)
      args.to.y.data[(row * kChosen + j) * args.to.y_stride + (unit - j * kUnits)] =
          to_bf16(activate<kActivation>(sums[0]) * sums[1]);
  });
}
