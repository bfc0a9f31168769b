// x[m, :] = float(embedding[token(m), :]) * scale + float(position_table[position(m), :]), the latter two if asked for.
// Block m: row m; thread t: elements t * 8 .. + 7 and every 2048th after.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/embed.h"

NODEWRIGHT_KERNEL(embed, Embed, kEmbedThreads) {
  wait_for_inputs();
  release_behind_wait();  // not before: what the step's rows are is settled for every kernel behind this one
  const int row = static_cast<int>(blockIdx.x);
  // All three before the first of them is looked at.
  const int live = load_settled(args.n_live.data), sequence = load_settled(args.sequences.data + row);
  int token = load_settled(args.tokens.data + row);
  const bool lives = row < live;
  if (lives && token < 0) token = args.last_token.data[sequence];
  if (token < 0 || token >= args.vocab) token = 0;  // a failed row's -1 must not be followed; the host reports it
  if (!lives) return;
  const bf16* from = args.embedding.data + token * args.stride;
  float* to = args.x.data + row * args.stride;
  float squares = 0.0f;
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
    if constexpr (kLeavesGained != 0) {
      float gain[8];
      unpack_8(load_frozen_16(args.next.gain.data + i), gain);
      NODEWRIGHT_UNROLL
      for (int j = 0; j < 8; ++j) squares = fmaf(v[j], v[j], squares), gain[j] *= v[j];
      store_16(args.next.gained.data + row * args.stride + i,
               {pack_bf16(gain[0], gain[1]), pack_bf16(gain[2], gain[3]), pack_bf16(gain[4], gain[5]),
                pack_bf16(gain[6], gain[7])});
    }
  }
  if constexpr (kLeavesGained != 0) {
    squares = block_sum(squares, reinterpret_cast<float*>(shared_memory()));
    if (threadIdx.x == 0) args.next.squares.data[row] = squares;
  }
}
