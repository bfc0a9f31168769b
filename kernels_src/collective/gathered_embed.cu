// x[m, :] = float(gathered[rank of token(m), m, :]) * scale + float(position_table[position(m), :]), the latter two if
// asked for. Block m: row m; thread t: elements t * 8 .. + 7 and every 2048th after.
#include "kernels_src/collective/gathered_embed.h"
#include "kernels_src/collective/step_token.cuh"
#include "kernels_src/residual/embedded_row.cuh"

NODEWRIGHT_KERNEL(gathered_embed, GatheredEmbed, kGatheredEmbedThreads) {
  wait_for_inputs();
  release_behind_wait();
  const int64_t row = blockIdx.x;
  if (row >= args.in.n_live.data[0]) return;
  const int64_t token = step_token(args.in, row);
  int64_t rank = 0;
  while (token >= first_token(args.in, rank + 1)) ++rank;
  const bf16* const from = args.gathered.data + rank * args.gathered_stride + row * args.to.stride;
  put_embedded_row<kGatheredEmbedThreads>(args.to, row,
                                          [&](int64_t i, float(&v)[8]) { unpack_8(load_16(from + i), v); });
}
