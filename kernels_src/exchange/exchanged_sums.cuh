// Sums over the ranks of what each has of rows, in a node of its own: what exchange_add.cu and its form of rows with
// adapters share. Block (b, c): columns b * 256 .. + 255 of rows c, c + gridDim.y, ..., or chunks b, b + gridDim.x, ...
#pragma once

#include "kernels_src/exchange/bulk_sums.cuh"
#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/exchange/exchange_add.h"

namespace nodewright {

inline constexpr unsigned kThreadsOfSums = kExchangeAddThreads * static_cast<unsigned>(kBulk == 0 ? 1 : kBulk);

// The sum of all ranks goes to its place; returns what stands there then.
NODEWRIGHT_DEVICE float put_sum(const SumOut& to, int64_t at, float sum) {
  if constexpr (kAdds != 0) {
    sum = __fadd_rn(to.residual.data[at], sum);
    to.residual.data[at] = sum;
  } else {
    to.sum.data[at] = sum;
  }
  return sum;
}

NODEWRIGHT_DEVICE float bias_of(const OwnIn& own, int64_t col) {
  if constexpr (kBias != 0) return to_float(own.bias.data[col]);
  return 0.0f;
}

// What this rank has of a column, without its bias.
NODEWRIGHT_DEVICE float value_of(const ExchangeAdd& args, int64_t row, int64_t col) {
  if constexpr (kChosen == 0) {
    return args.own.y.data[row * args.to.stride + col];
  } else {
    float sum = 0.0f;
    NODEWRIGHT_UNROLL_BY(8)
    for (int j = 0; j < kChosen; ++j) {
      const int64_t of_row = row * kChosen + j;
      sum = fmaf(args.own.weights.data[of_row], args.own.y.data[of_row * args.to.stride + col], sum);
    }
    return sum;
  }
}

template <class Own>
NODEWRIGHT_DEVICE void exchange_values(const ExchangeAdd& args, uint32_t epoch, int64_t live, float bias, float gain,
                                       Own own) {
  constexpr int kTeam = static_cast<int>(kRanks);
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kExchangeAddThreads + threadIdx.x;
  const bool has = col < args.own.cols;
  const auto mine = [&](int64_t row) { return scaled_by<kScale>(own(row, col, value_of(args, row, col) + bias)); };
  if (has)
    for (int64_t row = blockIdx.y; row < live; row += gridDim.y)
      send<kTeam>(args.exchange, row * args.own.cols + col, mine(row), epoch);
  for (int64_t row = blockIdx.y; row < live; row += gridDim.y) {
    float sum = 0.0f;
    if (has)
      sum = put_sum(args.to, row * args.to.stride + col,
                    take_sum<kTeam>(args.exchange, row * args.own.cols + col, mine(row), epoch));
    if constexpr (kLeavesGained != 0) {
      if (has) args.to.next.gained.data[row * args.own.cols + col] = to_bf16(sum * gain);
      const float squares = block_sum(sum * sum, reinterpret_cast<float*>(shared_memory()));
      const int64_t rows = (static_cast<int64_t>(args.to.next.gained.count) / args.own.cols + 7) / 8 * 8;
      if (threadIdx.x == 0) args.to.next.squares.data[blockIdx.x * rows + row] = squares;
    }
  }
}

// The eight values at (row, col), with the bias and what own() adds, rounded to bf16.
template <class Own>
NODEWRIGHT_DEVICE uint4 bulk_word(const ExchangeAdd& args, int64_t row, int64_t col, Own own) {
  float v[8];
  if constexpr (kChosen == 0) {
    unpack_word(*reinterpret_cast<const uint4*>(args.own.y_bf16.data + row * args.to.stride + col), v);
  } else {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = value_of(args, row, col + i);
  }
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = scaled_by<kScale>(own(row, col + i, v[i] + bias_of(args.own, col + i)));
  return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

// The sums of eight columns go to their place.
NODEWRIGHT_DEVICE void put_sums(const SumOut& to, int64_t at, const float (&sums)[8]) {
  float* place = nullptr;
  if constexpr (kAdds != 0)
    place = to.residual.data + at;
  else
    place = to.sum.data + at;
  auto* const quads = reinterpret_cast<float4*>(place);
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 2; ++i) {
    float4 quad = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    if constexpr (kAdds != 0) {
      const float4 had = quads[i];
      quad = make_float4(__fadd_rn(had.x, quad.x), __fadd_rn(had.y, quad.y), __fadd_rn(had.z, quad.z),
                         __fadd_rn(had.w, quad.w));
    }
    quads[i] = quad;
  }
}

// own(row, col, value) is what this rank has of an element, from y with the
// bias; it gives the same bits whenever it is asked.
template <class Own>
NODEWRIGHT_DEVICE void exchange_and_add(const ExchangeAdd& args, Own own) {
  // Not in a lane: dependents would wait on the SMs that the other lane's products use meanwhile.
  if constexpr (kBulk <= 1) release_dependents();
  if constexpr (kBulk != 0) {
    wait_for_inputs();
    exchange_bulk<kThreadsOfSums>(
        args.exchange, args.own.cols, args.own.n_live.data[0], epoch_of(args.exchange),
        [&](int64_t row, int64_t col) { return bulk_word(args, row, col, own); },
        [&](int64_t row, int64_t col, const float(&sums)[8]) { put_sums(args.to, row * args.to.stride + col, sums); });
  } else {
    const int64_t col = static_cast<int64_t>(blockIdx.x) * kExchangeAddThreads + threadIdx.x;
    const bool has = col < args.own.cols;
    const float bias = has ? bias_of(args.own, col) : 0.0f;
    float gain = 0.0f;
    if constexpr (kLeavesGained != 0)
      if (has) gain = to_float(args.to.next.gain.data[col]);
    wait_for_inputs();
    exchange_values(args, epoch_of(args.exchange), args.own.n_live.data[0], bias, gain, own);
  }
}

}  // namespace nodewright
