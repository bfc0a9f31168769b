// own[m, :] = embedding[token(m), :] where this rank has the token's row. Block m: row m; thread t: elements t * 8 .. +
// 7 and every 2048th after.
#include "kernels_src/collective/own_embedding.h"
#include "kernels_src/collective/step_token.cuh"

NODEWRIGHT_KERNEL(own_embedding, OwnEmbedding, kOwnEmbeddingThreads) {
  wait_for_inputs();
  release_behind_wait();  // not before: what the step's rows are is settled for every kernel after this one
  const int64_t row = blockIdx.x;
  if (row >= args.in.n_live.data[0]) return;
  const int64_t token = step_token(args.in, row), first = first_token(args.in, args.rank);
  if (token < first || token >= first_token(args.in, args.rank + 1)) return;
  const bf16* const from = args.embedding.data + (token - first) * args.stride;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * 8; i < args.stride;
       i += static_cast<int64_t>(kOwnEmbeddingThreads) * 8)
    store_16(args.own.data + row * args.stride + i, load_frozen_16(from + i));
}
