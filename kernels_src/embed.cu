// x[m, :] = float(embedding[token(m), :]). Block m: row m; thread t: elements t * 8 .. + 7 and every 2048th after.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/embed.h"

NODEWRIGHT_KERNEL(embed, Embed, kEmbedThreads) {
  release_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.x);
  if (row >= args.n_live.data[0]) return;
  int token = args.tokens.data[row];
  if (token < 0) token = args.last_token.data[args.sequences.data[row]];
  if (token < 0 || token >= args.vocab) token = 0;  // a failed row's -1 must not be followed; the host reports it
  const bf16* from = args.embedding.data + token * args.stride;
  float* to = args.x.data + row * args.stride;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * 8; i < args.stride;
       i += static_cast<int64_t>(kEmbedThreads) * 8) {
    const uint4 v = load_frozen_16(from + i);
    store_16(to + i, uint4{v.x << 16, v.x & 0xffff0000u, v.y << 16, v.y & 0xffff0000u});
    store_16(to + i + 4, uint4{v.z << 16, v.z & 0xffff0000u, v.w << 16, v.w & 0xffff0000u});
  }
}
