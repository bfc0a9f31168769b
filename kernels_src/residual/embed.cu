// x[m, :] = float(embedding[token(m), :]) * scale + float(position_table[position(m), :]), the latter two if asked for.
// Block m: row m; thread t: elements t * 8 .. + 7 and every 2048th after.
#include "kernels_src/residual/embed.h"
#include "kernels_src/residual/embedded_row.cuh"

NODEWRIGHT_KERNEL(embed, Embed, kEmbedThreads) {
  wait_for_inputs();
  release_behind_wait();  // not before: what the step's rows are is settled for every kernel after this one
  const int row = static_cast<int>(blockIdx.x);
  // All three before the first of them is looked at.
  const int live = load_settled(args.in.n_live.data), sequence = load_settled(args.in.sequences.data + row);
  int token = load_settled(args.in.tokens.data + row);
  const bool lives = row < live;
  if (lives && token < 0) token = args.in.last_token.data[sequence];
  if (token < 0 || token >= args.in.vocab) token = 0;  // a failed row's -1 must not be followed; the host reports it
  if (!lives) return;
  const bf16* const from = args.embedding.data + token * args.to.stride;
  put_embedded_row<kEmbedThreads>(args.to, row,
                                  [&](int64_t i, float(&v)[8]) { unpack_8(load_frozen_16(from + i), v); });
}
