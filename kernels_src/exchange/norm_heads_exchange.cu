// x[i] = x[i] / rms(x of all ranks) * gain[i], where x is a strip of a row: its queries, or its keys.
// Block (b, n): strip args.first_strip + n of rows b, b + gridDim.x, ...; thread t: elements t, t + 256, ... of it.
#include "kernels_src/attention/width_norm.cuh"
#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/exchange/norm_heads_exchange.h"

NODEWRIGHT_KERNEL(norm_heads_exchange, NormHeadsExchange, kNormHeadsThreads) {
  constexpr int kTeam = static_cast<int>(kRanks), kThreads = static_cast<int>(kNormHeadsThreads);
  release_dependents();
  wait_for_inputs();
  const uint32_t epoch = epoch_of(args.exchange);
  const bool of_keys = args.first_strip + blockIdx.y == 1;
  const int64_t heads = of_keys ? kKvHeads : kHeads, live = args.n_live.data[0], step = gridDim.x;
  const bf16* const gain = of_keys ? args.k_gain.data : args.q_gain.data;
  const auto strip_of = [&](int64_t row) {
    return args.qkv.data + row * args.stride + (of_keys ? kHeads * kHeadDim : 0);
  };
  const auto packet_of = [&](int64_t row) { return row * gridDim.y + blockIdx.y; };
  auto* const sums = reinterpret_cast<float*>(shared_memory());  // [warps], then the scale of a row
  float* const shared_scale = sums + kThreads / 32;

  // A row is sent before the one before it is taken: its sum travels meanwhile, and nobody waits for a sum that the
  // other has not sent before it waits itself.
  float sent = 0.0f;
  for (int64_t row = blockIdx.x; row < live + step; row += step) {
    float squares = 0.0f;
    if (row < live) {
      squares = block_sum(width_squares(strip_of(row), heads, static_cast<int>(threadIdx.x), kThreads), sums);
      if (threadIdx.x == 0) send<kTeam>(args.exchange, packet_of(row), squares, epoch);
    }
    if (const int64_t before = row - step; before >= 0) {
      if (threadIdx.x == 0)
        *shared_scale =
            width_scale(take_sum<kTeam>(args.exchange, packet_of(before), sent, epoch), heads * kTeam, args.eps);
      __syncthreads();
      const float scale = *shared_scale;
      __syncthreads();  // before the next row's
      float* const x = strip_of(before);
      NODEWRIGHT_UNROLL_BY(8)
      for (int i = static_cast<int>(threadIdx.x); i < heads * kHeadDim; i += kThreads)
        x[i] = normed_element(x[i], scale, gain[i]);
    }
    sent = squares;
  }
}
