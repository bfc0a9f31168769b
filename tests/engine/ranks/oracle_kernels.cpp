// The kernels of the oracle: plain loops, a rounding an operation.
#include "tests/engine/ranks/oracle_kernels.h"

namespace nodewright::test {

// Block m: row m.
const InlineKernel kRankValue("oracle_value", kRankValueText, R"(
#include "kernels_src/device/numeric.cuh"
NODEWRIGHT_KERNEL(oracle_value, RankValue, 256) {
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  if (row >= args.n_live.data[0]) return;
  for (int64_t n = threadIdx.x; n < args.cols; n += 256) {
    float v = 0.0f;
    if constexpr (kChosen != 0) {
      for (int64_t pair = row * kChosen; pair < (row + 1) * kChosen; ++pair)
        v = fmaf(args.weights.data[pair], args.y.data[pair * args.stride + n], v);
    } else if constexpr (kBulk != 0) {
      v = to_float(args.y_bf16.data[row * args.stride + n]);
    } else {
      v = args.y.data[row * args.stride + n];
    }
    if constexpr (kBias != 0) v += to_float(args.bias.data[n]);
    v = scaled_by<kScale>(v);
    if constexpr (kBulk != 0) v = to_float(to_bf16(v));
    args.value.data[row * args.cols + n] = v;
  }
}
)");

// Without squares block m: row m. With those of blocks of 256 columns block b: such a block, of all rows; else the
// outputs that block b of the product has, thread m: row m, lane after lane.
const InlineKernel kRankSum("oracle_sum", kRankSumText, R"(
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/device/output_range.cuh"
NODEWRIGHT_DEVICE float put_rank_sum(const RankSum& args, int64_t row, int64_t n) {
  const int64_t at = row * args.cols + n, to = row * args.stride + n;
  float sum = args.values.data[at];
  for (int64_t rank = 1; rank < kRanks; ++rank)
    sum = __fadd_rn(sum, args.values.data[rank * args.rows * args.cols + at]);
  if constexpr (kAdds != 0) {
    sum = __fadd_rn(args.residual.data[to], sum);
    args.residual.data[to] = sum;
  } else {
    args.sum.data[to] = sum;
  }
  if constexpr (kLeavesGained != 0) args.gained.data[at] = to_bf16(sum * to_float(args.gain.data[n]));
  return sum;
}
NODEWRIGHT_KERNEL(oracle_sum, RankSum, 256) {
  wait_for_inputs();
  const int64_t live = args.n_live.data[0], own = threadIdx.x;
  if constexpr (kLeavesGained == 0) {
    const int64_t row = blockIdx.x;
    if (row >= live) return;
    for (int64_t n = own; n < args.cols; n += 256) put_rank_sum(args, row, n);
  } else if constexpr (kLanes == 0) {
    const int64_t n = static_cast<int64_t>(blockIdx.x) * 256 + own;
    for (int64_t row = 0; row < live; ++row) {
      const float sum = n < args.cols ? put_rank_sum(args, row, n) : 0.0f;
      const float squares = block_sum(sum * sum, reinterpret_cast<float*>(shared_memory()));
      if (own == 0) args.squares.data[blockIdx.x * kTokens + row] = squares;
    }
  } else if (own < kTokens) {
    const OutputRange range = block_outputs<kSplits>(args.cols);
    const int outputs = range.last - range.first, part = static_cast<int>(blockIdx.x % kSplits);
    const int first = range.first + outputs * part / static_cast<int>(kSplits);
    const int last = range.first + outputs * (part + 1) / static_cast<int>(kSplits);
    constexpr int kOfRow = kLanes == 0 ? 1 : static_cast<int>(kLanes);
    float of_lane[kOfRow] = {};
    for (int lane = 0; lane < kOfRow && own < live; ++lane)
      for (int n = first + lane; n < last; n += 32) {
        float squares = 0.0f;
        for (int at = n; at < n + 32 && at < last; at += kOfRow) {
          const float sum = put_rank_sum(args, own, at);
          squares = fmaf(sum, sum, squares);
        }
        of_lane[lane] = __fadd_rn(of_lane[lane], squares);
      }
    for (int half = kOfRow / 2; half > 0; half /= 2)
      for (int lane = 0; lane < half; ++lane) of_lane[lane] = __fadd_rn(of_lane[lane], of_lane[lane + half]);
    args.squares.data[blockIdx.x * kTokens + own] = of_lane[0];
  }
}
)");

// Block m: row m.
const InlineKernel kRankBest("oracle_best", kRankBestText, R"(
NODEWRIGHT_KERNEL(oracle_best, RankBest, 256) {
  wait_for_inputs();
  for (int64_t j = threadIdx.x; j < args.parts; j += 256) {
    const int64_t from = (blockIdx.x * args.parts + j) * 2;
    const int64_t to = ((blockIdx.x * kRanks + args.rank) * args.parts + j) * 2;
    const int32_t token = args.best.data[from + 1];
    args.all.data[to] = args.best.data[from];
    args.all.data[to + 1] = token < 0 ? token : token + static_cast<int32_t>(args.first);
  }
}
)");

// Block m: row m.
const InlineKernel kRankSquares("rank_squares", kRankSquaresText, R"(
#include "kernels_src/device/numeric.cuh"
NODEWRIGHT_KERNEL(rank_squares, RankSquares, 256) {
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  if (row >= args.n_live.data[0]) return;
  for (int64_t n = 0; n < args.strips; ++n) {
    const bool of_keys = args.first + n == 1;
    const float* const x = args.qkv.data + row * args.stride + (of_keys ? kHeads * kHeadDim : 0);
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < (of_keys ? kKvHeads : kHeads) * kHeadDim; i += 256)
      squares = fmaf(x[i], x[i], squares);
    squares = block_sum(squares, reinterpret_cast<float*>(shared_memory()));
    if (threadIdx.x == 0) args.squares.data[row * args.strips + n] = squares;
  }
}
)");

// Block m: row m.
const InlineKernel kRankNorm("rank_norm", kRankNormText, R"(
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/norm.h"
NODEWRIGHT_KERNEL(rank_norm, RankNorm, 256) {
  wait_for_inputs();
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  const int64_t row = blockIdx.x, of_rank = static_cast<int64_t>(gridDim.x) * args.strips;
  if (row >= args.n_live.data[0]) return;
  for (int64_t n = 0; n < args.strips; ++n) {
    const bool of_keys = args.first + n == 1;
    const int64_t width = (of_keys ? kKvHeads : kHeads) * kHeadDim;
    float* const x = args.qkv.data + row * args.stride + (of_keys ? kHeads * kHeadDim : 0);
    const bf16* const gain = of_keys ? args.k_gain.data : args.q_gain.data;
    float squares = args.squares.data[row * args.strips + n];
    for (int64_t rank = 1; rank < kRanks; ++rank)
      squares = __fadd_rn(squares, args.squares.data[rank * of_rank + row * args.strips + n]);
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(width * kRanks) + args.eps);
    for (int64_t i = threadIdx.x; i < width; i += 256) x[i] = x[i] * (scale * (kOffset + to_float(gain[i])));
  }
}
)");

}  // namespace nodewright::test
