// squares[m, n] = the sum of the squares of row m's queries (n 0) or keys (n 1). Block (m, n).
#include "kernels_src/attention/width_norm.cuh"
#include "kernels_src/collective/own_squares.h"

NODEWRIGHT_KERNEL(own_squares, OwnSquares, kOwnSquaresThreads) {
  release_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  if (row >= args.n_live.data[0]) return;
  const bool of_keys = blockIdx.y == 1;
  const float* const strip = args.qkv.data + row * args.stride + (of_keys ? kHeads * kHeadDim : 0);
  const float squares = block_sum(width_squares(strip, of_keys ? kKvHeads : kHeads, static_cast<int>(threadIdx.x),
                                                static_cast<int>(kOwnSquaresThreads)),
                                  reinterpret_cast<float*>(shared_memory()));
  if (threadIdx.x == 0) args.squares.data[2 * row + blockIdx.y] = squares;
}
