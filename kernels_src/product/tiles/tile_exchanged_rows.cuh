// A product in tiles whose results are sums over the ranks of a device group (tile_project_exchange.cu,
// tile_adapted_project_exchange.cu). A block sends a tile's sums as soon as the tile is finished, while it loads the
// next tiles. After it has sent them all it receives the sums of the same block of each other rank.
#pragma once

#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/product/end/end.cuh"
#include "kernels_src/product/tiles/tile_kept_sums.cuh"

namespace nodewright {

// The next norm's gain of kKeptAtOnce outputs, kRowLanes apart: as it comes, so that nothing waits for it yet.
struct NextGains {
  bf16 of[kKeptAtOnce];

  NODEWRIGHT_DEVICE void request(const ResidualOut& next, OutputRange own, int first) {
    if constexpr (kLeavesGained != 0) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int j = 0; j < kKeptAtOnce; ++j)
        if (first + j * kRowLanes < own.last) of[j] = next.gain.data[first + j * kRowLanes];
    }
  }
};

// For this thread's row m: takes the sums of kKeptAtOnce outputs from `first` on, kRowLanes apart, and stores them. All
// looks and loads are on their way before the first wait. Returns the sum of their squares.
template <class Args>
NODEWRIGHT_DEVICE float take_kept(const Args& args, const KeptSums& kept, const NextGains& gains, int first, int m,
                                  uint32_t epoch) {
  constexpr int kTeam = static_cast<int>(kRanks);
  const int64_t row = m * args.w.outputs, to = m * args.to.stride;
  float residual[kKeptAtOnce] = {}, squares = 0.0f;
  LookedAt<kTeam> looked[kKeptAtOnce] = {};
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int j = 0; j < kKeptAtOnce; ++j) {
    const int n = first + j * kRowLanes;
    if (n >= kept.own.last) break;
    if constexpr (kAdds != 0) residual[j] = args.to.residual.data[to + n];
    looked[j] = look_at<kTeam>(args.exchange, row + n);
  }
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int j = 0; j < kKeptAtOnce; ++j) {
    const int n = first + j * kRowLanes;
    if (n >= kept.own.last) break;
    float sum = take_sum<kTeam>(args.exchange, row + n, looked[j], kept.at(n, m), epoch);
    if constexpr (kAdds != 0) {
      sum = __fadd_rn(residual[j], sum);
      args.to.residual.data[to + n] = sum;
    } else {
      args.to.sum.data[to + n] = sum;
    }
    if constexpr (kLeavesGained != 0) {
      args.to.next.gained.data[row + n] = to_bf16(sum * to_float(gains.of[j]));
      squares = fmaf(sum, sum, squares);
    }
  }
  return squares;
}

// Args: ProjectExchange. Of: an end whose adjusted() returns what this rank adds to an output; `more`: what it takes
// beside the sum.
template <class Of, class Args, class... More>
NODEWRIGHT_DEVICE void tile_project_and_exchange(const Args& args, const More&... more) {
  static_assert(kLeavesGained == 0 || kAdds != 0);
  int live = 0;
  uint32_t epoch = 0;
  NextGains first_gains;  // requested while weights are on their way
  const KeptSums kept = tile_project_kept(
      args, live,
      [&](OutputRange range) {
        epoch = epoch_of(args.exchange);
        first_gains.request(args.to.next, range, first_kept(range));
      },
      [&](int n, int m, float sum) {
        const float own = ended<kBias>(args.w, n, sum, scale_of<kStride>(args.w, n));
        const float mine = scaled_by<kScale>(Of::adjusted(m, n, 0, own, more...));
        send<static_cast<int>(kRanks)>(args.exchange, m * args.w.outputs + n, mine, epoch);
        return mine;
      });
  for_each_shared_row([&](int m) {
    float squares = 0.0f;
    if (m < live)
      for_each_kept(kept.own, [&](int n) {
        NextGains gains = first_gains;
        if (n != first_kept(kept.own)) gains.request(args.to.next, kept.own, n);
        squares += take_kept(args, kept, gains, n, m, epoch);
      });
    if constexpr (kLeavesGained != 0) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int offset = kRowLanes / 2; offset > 0; offset /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, offset);
      if (lane_of_warp() % kRowLanes == 0)
        args.to.next.squares.data[static_cast<int>(blockIdx.x) * kTokens + m] = squares;
    }
  });
  end_kept_sums();
}

}  // namespace nodewright
