// x[m, :] = token_table[token(m), :] + position_table[position(m), :]. Block m: row m; thread t: columns t, t + 128,
// ... Constant: kWeightBytes (2 or 4) of a table's element.
#include "examples/nanogpt/kernels/embed_positions.h"
#include "examples/nanogpt/kernels/weight_element.cuh"

namespace nodewright {

using EmbedPositionsArgs = EmbedPositions<WeightElement>;

}  // namespace nodewright

NODEWRIGHT_KERNEL(embed_positions, EmbedPositionsArgs, kEmbedPositionsThreads) {
  release_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.x);
  if (row >= args.n_live.data[0]) return;
  const int position = args.positions.data[row] + args.advance;
  int token = args.tokens.data[row];
  if (token < 0) token = args.last_token.data[args.sequences.data[row]];
  if (token < 0 || token >= args.vocab) token = 0;       // a failed row's -1 must not be followed; the host reports it
  __syncthreads();                                       // everybody has read the position
  if (position < 0 || position >= args.context) return;  // the end of the context is a stop, not a wrap
  if (threadIdx.x == 0) args.positions.data[row] = position;
  const WeightElement* from = args.token_table.data + token * args.cols;
  const WeightElement* at = args.position_table.data + position * args.cols;
  for (int64_t i = threadIdx.x; i < args.cols; i += kEmbedPositionsThreads)
    args.x.data[row * args.x_stride + i] = as_float(from[i]) + as_float(at[i]);
}
