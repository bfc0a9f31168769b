// residual[m, n] += sum over ranks r of (y_r[m, n] + bias_r[n]) * kScale, in the order of the ranks, or sum[m, n] = it.
// With kChosen sum_j weights[m, j] * y_r[m, j, n], in the order of j, stands for y_r[m, n].
// Block (b, c): packets b * 256 .. + 255 of rows c, c + gridDim.y, ... Of pairs a thread has kAtOnce rows under way.
#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/exchange/exchange_add.h"

// The sum of all ranks goes to its place; returns what stands there then.
NODEWRIGHT_DEVICE float put_sum(const ExchangeAdd& args, int64_t at, float sum) {
  if constexpr (kAdds != 0) {
    sum = __fadd_rn(args.residual.data[at], sum);
    args.residual.data[at] = sum;
  } else {
    args.sum.data[at] = sum;
  }
  return sum;
}

NODEWRIGHT_DEVICE float bias_of(const ExchangeAdd& args, int64_t col) {
  if constexpr (kBias != 0) return to_float(args.bias.data[col]);
  return 0.0f;
}

// What this rank has of a column, without its bias.
NODEWRIGHT_DEVICE float value_of(const ExchangeAdd& args, int64_t row, int64_t col) {
  if constexpr (kChosen == 0) {
    return args.y.data[row * args.stride + col];
  } else {
    float sum = 0.0f;
    NODEWRIGHT_UNROLL_BY(8)
    for (int j = 0; j < kChosen; ++j) {
      const int64_t of_row = row * kChosen + j;
      sum = fmaf(args.weights.data[of_row], args.y.data[of_row * args.stride + col], sum);
    }
    return sum;
  }
}

// The same of two columns.
NODEWRIGHT_DEVICE ValuePair pair_of(const ExchangeAdd& args, int64_t row, int64_t pair) {
  if constexpr (kChosen == 0) {
    const auto* const y = reinterpret_cast<const uint32_t*>(args.pairs.data + row * args.stride);
    return unpacked(__uint_as_float(y[pair]));
  } else {
    return {value_of(args, row, 2 * pair), value_of(args, row, 2 * pair + 1)};
  }
}

NODEWRIGHT_DEVICE void exchange_values(const ExchangeAdd& args, uint32_t epoch, int64_t live, float bias, float gain) {
  constexpr int kTeam = static_cast<int>(kRanks);
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kExchangeAddThreads + threadIdx.x;
  const bool has = col < args.cols;
  const auto mine = [&](int64_t row) { return scaled_by<kScale>(value_of(args, row, col) + bias); };
  if (has)
    for (int64_t row = blockIdx.y; row < live; row += gridDim.y)
      send<kTeam>(args.exchange, row * args.cols + col, mine(row), epoch);
  for (int64_t row = blockIdx.y; row < live; row += gridDim.y) {
    float sum = 0.0f;
    if (has)
      sum = put_sum(args, row * args.stride + col,
                    take_sum<kTeam>(args.exchange, row * args.cols + col, mine(row), epoch));
    if constexpr (kLeavesGained != 0) {
      if (has) args.next.gained.data[row * args.cols + col] = to_bf16(sum * gain);
      const float squares = block_sum(sum * sum, reinterpret_cast<float*>(shared_memory()));
      const int64_t rows = (static_cast<int64_t>(args.next.gained.count) / args.cols + 7) / 8 * 8;
      if (threadIdx.x == 0) args.next.squares.data[blockIdx.x * rows + row] = squares;
    }
  }
}

// A group of kAtOnce rows is sent, then the group before it taken: what comes travels while what has come is added, and
// nobody waits for a group that the other has not sent before it waits itself.
NODEWRIGHT_DEVICE void exchange_pairs(const ExchangeAdd& args, uint32_t epoch, int64_t live, ValuePair bias) {
  constexpr int kTeam = static_cast<int>(kRanks), kAtOnce = 4;
  const int64_t pair = static_cast<int64_t>(blockIdx.x) * kExchangeAddThreads + threadIdx.x, pairs = args.cols / 2;
  if (pair >= pairs) return;
  const auto mine = [&](int64_t row) {
    const ValuePair v = pair_of(args, row, pair);
    return packed({scaled_by<kScale>(v.low + bias.low), scaled_by<kScale>(v.high + bias.high)});
  };
  const int64_t step = gridDim.y, group = kAtOnce * step;
  float sent[kAtOnce] = {};
  for (int64_t first = blockIdx.y; first < live + group; first += group) {
    float values[kAtOnce] = {};
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kAtOnce; ++j)
      if (first + j * step < live) values[j] = mine(first + j * step);
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kAtOnce; ++j)
      if (first + j * step < live) send<kTeam>(args.exchange, (first + j * step) * pairs + pair, values[j], epoch);
    const int64_t before = first - group;
    if (before >= 0) {
      LookedAt<kTeam> looked[kAtOnce];
      NODEWRIGHT_UNROLL
      for (int j = 0; j < kAtOnce; ++j)
        if (before + j * step < live) looked[j] = look_at<kTeam>(args.exchange, (before + j * step) * pairs + pair);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t row = before + j * step;
        if (row >= live) continue;
        const ValuePair sum =
            take_pair_sum<kTeam>(args.exchange, row * pairs + pair, looked[j], unpacked(sent[j]), epoch);
        put_sum(args, row * args.stride + 2 * pair, sum.low);
        put_sum(args, row * args.stride + 2 * pair + 1, sum.high);
      }
    }
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kAtOnce; ++j) sent[j] = values[j];
  }
}

NODEWRIGHT_KERNEL(exchange_add, ExchangeAdd, kExchangeAddThreads) {
  release_dependents();
  const int64_t packet = static_cast<int64_t>(blockIdx.x) * kExchangeAddThreads + threadIdx.x;
  if constexpr (kPairs != 0) {
    const bool has = 2 * packet < args.cols;
    const ValuePair bias{has ? bias_of(args, 2 * packet) : 0.0f, has ? bias_of(args, 2 * packet + 1) : 0.0f};
    wait_for_inputs();
    exchange_pairs(args, epoch_of(args.exchange), args.n_live.data[0], bias);
  } else {
    const bool has = packet < args.cols;
    const float bias = has ? bias_of(args, packet) : 0.0f;
    float gain = 0.0f;
    if constexpr (kLeavesGained != 0)
      if (has) gain = to_float(args.next.gain.data[packet]);
    wait_for_inputs();
    exchange_values(args, epoch_of(args.exchange), args.n_live.data[0], bias, gain);
  }
}
