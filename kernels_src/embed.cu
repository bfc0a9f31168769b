// x[m, :] = float(embedding[token(m), :]) * scale + float(position_table[position(m), :]), the latter two if asked for.
// Block m: row m; thread t: elements t * 8 .. + 7 and every 2048th after.
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
    float v[8];
    unpack_8(load_frozen_16(from + i), v);
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
    store_fp32_8(to + i, v);
  }
}
