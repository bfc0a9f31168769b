// x[m, :] = float(embedding[token(m), :]) * scale + float(position_table[position(m), :]), the latter two if asked for.
// Block b: rows b, b + gridDim.x, ..., first those whose token this rank has; thread t: elements t * 8 .. + 7 and every
// 2048th after.
#include "kernels_src/exchange/embed_exchange.h"
#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/residual/embedded_row.cuh"

NODEWRIGHT_KERNEL(embed_exchange, EmbedExchange, kEmbedExchangeThreads) {
  constexpr int kTeam = static_cast<int>(kRanks);
  wait_for_inputs();
  release_behind_wait();  // not before: what the step's rows are is settled for every kernel after this one
  const uint32_t epoch = epoch_of(args.exchange);
  const int live = args.embed.in.n_live.data[0];
  const auto token_of = [&](int row) {
    int token = args.embed.in.tokens.data[row];
    if (token < 0) token = args.embed.in.last_token.data[args.embed.in.sequences.data[row]];
    return token < 0 || token >= args.embed.in.vocab ? 0 : token;  // a failed row's -1 must not be followed
  };
  const auto first_of = [&](int64_t rank) { return args.embed.in.vocab * rank / kTeam; };
  const int64_t own = args.exchange.rank;
  const bool meets = blockIdx.x == 0 && threadIdx.x == 0;  // of the ranks one may have all tokens
  if (meets) send<kTeam>(args.exchange, 0, 0.0f, epoch);
  for (int row = static_cast<int>(blockIdx.x); row < live; row += static_cast<int>(gridDim.x)) {
    const int64_t token = token_of(row), at = token - first_of(own);
    if (at < 0 || token >= first_of(own + 1)) continue;
    put_embedded_row<kEmbedExchangeThreads>(args.embed.to, row, [&](int64_t i, float(&v)[8]) {
      unpack_8(load_frozen_16(args.embed.embedding.data + at * args.embed.to.stride + i), v);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) send<kTeam>(args.exchange, 1 + row * args.embed.to.stride + i + j, v[j], epoch);
    });
  }
  for (int row = static_cast<int>(blockIdx.x); row < live; row += static_cast<int>(gridDim.x)) {
    const int64_t token = token_of(row);
    for_each_peer<kTeam>(args.exchange, [&](int rank, Packet*, const Packet* from) {
      if (token < first_of(rank) || token >= first_of(rank + 1)) return;
      put_embedded_row<kEmbedExchangeThreads>(args.embed.to, row, [&](int64_t i, float(&v)[8]) {
        Packet packets[8];
        const Packet* const at = from + 1 + row * args.embed.to.stride + i;
        NODEWRIGHT_UNROLL
        for (int j = 0; j < 8; ++j) packets[j] = look(at + j);
        NODEWRIGHT_UNROLL
        for (int j = 0; j < 8; ++j)
          v[j] = take(at + j, packets[j], epoch, {args.exchange.aborted.data, args.exchange.seen.data});
      });
    });
  }
  if (meets) meet<kTeam>(args.exchange, 0, epoch);
}
