// x[m, :] = float(embedding[token(m), :]) * scale + float(position_table[position(m), :]), the latter two if asked for.
// Block b: rows b, b + gridDim.x, ..., first those whose token this rank has; thread t: elements t * 8 .. + 7 and every
// 2048th after.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/exchange/embed_exchange.h"
#include "kernels_src/exchange/exchange.cuh"

NODEWRIGHT_KERNEL(embed_exchange, EmbedExchange, kEmbedExchangeThreads) {
  constexpr int kTeam = static_cast<int>(kRanks);
  wait_for_inputs();
  release_behind_wait();  // not before: what the step's rows are is settled for every kernel behind this one
  const uint32_t epoch = epoch_of(args.exchange);
  const int live = args.n_live.data[0];
  const auto token_of = [&](int row) {
    int token = args.tokens.data[row];
    if (token < 0) token = args.last_token.data[args.sequences.data[row]];
    return token < 0 || token >= args.vocab ? 0 : token;  // a failed row's -1 must not be followed
  };
  const auto first_of = [&](int64_t rank) { return args.vocab * rank / kTeam; };
  const int64_t own = args.exchange.rank;
  // Elements i .. i + 7 of a row, as the embedding has them.
  const auto finish = [&](int row, int64_t i, float(&v)[8], float& squares) {
    if constexpr (kScaled != 0) {
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) v[j] *= args.scale;
    }
    if constexpr (kPositions != 0) {
      float p[8];
      unpack_8(load_frozen_16(args.position_table.data + args.positions.data[row] * args.stride + i), p);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) v[j] += p[j];
    }
    store_fp32_8(args.x.data + row * args.stride + i, v);
    if constexpr (kLeavesGained != 0) {
      float gain[8];
      unpack_8(load_frozen_16(args.next.gain.data + i), gain);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) squares = fmaf(v[j], v[j], squares), gain[j] *= v[j];
      store_16(args.next.gained.data + row * args.stride + i,
               {pack_bf16(gain[0], gain[1]), pack_bf16(gain[2], gain[3]), pack_bf16(gain[4], gain[5]),
                pack_bf16(gain[6], gain[7])});
    }
  };
  // Calls f(i, v) to fill v for all elements of a row.
  const auto fill_row = [&](int row, auto f) {
    float squares = 0.0f;
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * 8; i < args.stride;
         i += static_cast<int64_t>(kEmbedExchangeThreads) * 8) {
      float v[8];
      f(i, v);
      finish(row, i, v, squares);
    }
    if constexpr (kLeavesGained != 0) {
      squares = block_sum(squares, reinterpret_cast<float*>(shared_memory()));
      if (threadIdx.x == 0) args.next.squares.data[row] = squares;
    }
  };
  for (int row = static_cast<int>(blockIdx.x); row < live; row += static_cast<int>(gridDim.x)) {
    const int64_t token = token_of(row), at = token - first_of(own);
    if (at < 0 || token >= first_of(own + 1)) continue;
    fill_row(row, [&](int64_t i, float(&v)[8]) {
      unpack_8(load_frozen_16(args.embedding.data + at * args.stride + i), v);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) send<kTeam>(args.exchange, row * args.stride + i + j, v[j], epoch);
    });
  }
  for (int row = static_cast<int>(blockIdx.x); row < live; row += static_cast<int>(gridDim.x)) {
    const int64_t token = token_of(row);
    for_each_peer<kTeam>(args.exchange, [&](int rank, Packet*, const Packet* from) {
      if (token < first_of(rank) || token >= first_of(rank + 1)) return;
      fill_row(row, [&](int64_t i, float(&v)[8]) {
        Packet packets[8];
        const Packet* const at = from + row * args.stride + i;
        NODEWRIGHT_UNROLL
        for (int j = 0; j < 8; ++j) packets[j] = look(at + j);
        NODEWRIGHT_UNROLL
        for (int j = 0; j < 8; ++j)
          v[j] = take(at + j, packets[j], epoch, {args.exchange.aborted.data, args.exchange.seen.data});
      });
    });
  }
}
