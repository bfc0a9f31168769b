// The end of a block whose product is split over the ranks of a team: the sum of what all have joins the residual, or
// stands by itself for a norm.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// What this rank has of a sum, [rows, stride].
struct OwnIn {
  static constexpr bool kIsFlat = true;
  Optional<In<float>> y = {};        // [rows, stride]; or [rows, kChosen, stride] what each expert of a row gave
  Optional<In<bf16>> y_bf16 = {};    // [rows, stride] the same, where y is empty: with kBulk, without kChosen
  Optional<In<float>> weights = {};  // [rows, kChosen] of the experts; empty if kChosen is 0
  Optional<Frozen<bf16>> bias = {};  // [cols] of this rank; empty if kBias is 0
  In<int32_t> n_live;                // [1] rows that count, the same on all ranks
  int64_t cols;
};

// Takes part in one exchange of rows * cols values, a packet each; or with kBulk in one bulk exchange of them, rounded
// to bf16.
struct ExchangeAdd {
  static constexpr bool kIsFlat = true;
  OwnIn own;
  SumOut to;          // of stride `stride`, as y
  Exchange exchange;  // packet m * cols + n: row m, column n; of bulk word m * cols / 8 + n: columns 8 n .. + 7
};

// Constants: kRanks; kAdds; kBias; kScale: the bits of a factor of what each rank has, 0: none; kLeavesGained; kBulk:
// 0, or of columns in eights and without kLeavesGained the threads of a block as a multiple of kExchangeAddThreads;
// kChosen: of a mixture whose rows' experts gave a value each, how many, 0: one value.
inline constexpr unsigned kExchangeAddThreads = 256;
// As many blocks as run at once, or fewer. `sums_more`: values of adapters or of several experts join a rank's own.
constexpr unsigned exchange_add_blocks(unsigned ranks, unsigned sm_count, bool sums_more) {
  return (ranks > 2 || sums_more ? 2 : 4) * sm_count;  // what is seen of many ranks takes registers, as those do
}
// By packets: a block for each 256 columns of one row or several.
constexpr LaunchShape exchange_add_shape(unsigned rows, unsigned cols, unsigned ranks, unsigned sm_count,
                                         bool leaves_gained, bool sums_more = false) {
  const unsigned across = (cols + kExchangeAddThreads - 1) / kExchangeAddThreads;
  const unsigned most = exchange_add_blocks(ranks, sm_count, sums_more) / across, down = most == 0 ? 1 : most;
  return {{across, rows < down ? rows : down, 1},
          {kExchangeAddThreads, 1, 1},
          leaves_gained ? kExchangeAddThreads / 32 * 4 : 0};
}
// In a lane, beside which the other lane computes: blocks that fill an SM each, on few SMs, so that its products have
// the others. An eighth takes as long for a lane's sums as a fourth of its products do, by the bytes that a block has
// on its way (32 KiB) and 3 us for each chunk; not measured.
inline constexpr unsigned kLaneShareOfSms = 8;
constexpr unsigned lane_exchange_multiple(unsigned ranks, bool sums_more) {
  return exchange_add_blocks(ranks, 1, sums_more);
}
// In a bulk exchange: a block for each chunk, or for several.
constexpr LaunchShape exchange_bulk_shape(uint64_t values, unsigned ranks, unsigned sm_count, bool sums_more,
                                          bool in_lane = false) {
  const unsigned threads = kExchangeAddThreads * (in_lane ? lane_exchange_multiple(ranks, sums_more) : 1);
  const uint64_t chunk = uint64_t{8} * kBulkWords * threads, chunks = (values + chunk - 1) / chunk;
  const unsigned share = sm_count < kLaneShareOfSms ? 1 : sm_count / kLaneShareOfSms;
  const unsigned fit = in_lane ? share : exchange_add_blocks(ranks, sm_count, sums_more);
  const unsigned most = fit < kBulkFlags ? fit : kBulkFlags;
  return {{chunks < most ? static_cast<unsigned>(chunks) : most, 1, 1}, {threads, 1, 1}, 0};
}

}  // namespace nodewright
