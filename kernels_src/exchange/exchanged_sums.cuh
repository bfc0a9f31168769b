// Sums over the ranks of what each has of rows, in a node of its own: what exchange_add.cu and its form of rows with
// adapters share. Block (b, c): columns b * 256 .. + 255 of rows c, c + gridDim.y, ..., or chunks b, b + gridDim.x, ...
#pragma once

#include "kernels_src/exchange/bulk_sums.cuh"
#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/exchange/exchange_add.h"

namespace nodewright {

inline constexpr unsigned kThreadsOfSums = kExchangeAddThreads * static_cast<unsigned>(kBulk == 0 ? 1 : kBulk);

// The sum of all ranks goes to its place; returns what stands there then.
template <class Args>
NODEWRIGHT_DEVICE float put_sum(const Args& args, int64_t at, float sum) {
  if constexpr (kAdds != 0) {
    sum = __fadd_rn(args.residual.data[at], sum);
    args.residual.data[at] = sum;
  } else {
    args.sum.data[at] = sum;
  }
  return sum;
}

template <class Args>
NODEWRIGHT_DEVICE float bias_of(const Args& args, int64_t col) {
  if constexpr (kBias != 0) return to_float(args.bias.data[col]);
  return 0.0f;
}

// What this rank has of a column, without its bias.
template <class Args>
NODEWRIGHT_DEVICE float value_of(const Args& args, int64_t row, int64_t col) {
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

template <class Args, class Own>
NODEWRIGHT_DEVICE void exchange_values(const Args& args, uint32_t epoch, int64_t live, float bias, float gain,
                                       Own own) {
  constexpr int kTeam = static_cast<int>(kRanks);
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kExchangeAddThreads + threadIdx.x;
  const bool has = col < args.cols;
  const auto mine = [&](int64_t row) { return scaled_by<kScale>(own(row, col, value_of(args, row, col) + bias)); };
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

// The eight values at (row, col), with the bias and what own() adds, rounded to bf16.
template <class Args, class Own>
NODEWRIGHT_DEVICE uint4 bulk_word(const Args& args, int64_t row, int64_t col, Own own) {
  float v[8];
  if constexpr (kChosen == 0) {
    unpack_word(*reinterpret_cast<const uint4*>(args.y_bf16.data + row * args.stride + col), v);
  } else {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = value_of(args, row, col + i);
  }
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = scaled_by<kScale>(own(row, col + i, v[i] + bias_of(args, col + i)));
  return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

// The sums of eight columns go to their place.
template <class Args>
NODEWRIGHT_DEVICE void put_sums(const Args& args, int64_t at, const float (&sums)[8]) {
  float* place = nullptr;
  if constexpr (kAdds != 0)
    place = args.residual.data + at;
  else
    place = args.sum.data + at;
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

// `args`: those of ExchangeAdd, at least. own(row, col, value) is what this rank has of an element, from y with the
// bias; it gives the same bits whenever it is asked.
template <class Args, class Own>
NODEWRIGHT_DEVICE void exchange_and_add(const Args& args, Own own) {
  // Not in a lane: dependents would wait on the SMs that the other lane's products use meanwhile.
  if constexpr (kBulk <= 1) release_dependents();
  if constexpr (kBulk != 0) {
    wait_for_inputs();
    exchange_bulk<kThreadsOfSums>(
        args.exchange, args.cols, args.n_live.data[0], epoch_of(args.exchange),
        [&](int64_t row, int64_t col) { return bulk_word(args, row, col, own); },
        [&](int64_t row, int64_t col, const float(&sums)[8]) { put_sums(args, row * args.stride + col, sums); });
  } else {
    const int64_t col = static_cast<int64_t>(blockIdx.x) * kExchangeAddThreads + threadIdx.x;
    const bool has = col < args.cols;
    const float bias = has ? bias_of(args, col) : 0.0f;
    float gain = 0.0f;
    if constexpr (kLeavesGained != 0)
      if (has) gain = to_float(args.next.gain.data[col]);
    wait_for_inputs();
    exchange_values(args, epoch_of(args.exchange), args.n_live.data[0], bias, gain, own);
  }
}

}  // namespace nodewright
