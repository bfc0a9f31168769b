// What every embedding kernel makes of a row: eight elements at a time, scaled, with those of its position, left for
// the norm that comes next.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/embed.h"

namespace nodewright {

// Elements i .. i + 7 of `row`, as the embedding has them, go to the residual stream.
NODEWRIGHT_DEVICE void put_embedded(const EmbeddedOut& to, int64_t row, int64_t i, float (&v)[8], float& squares) {
  if constexpr (kScaled != 0) {
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j) v[j] *= to.scale;
  }
  if constexpr (kPositions != 0) {
    float p[8];
    unpack_8(load_frozen_16(to.position_table.data + to.positions.data[row] * to.stride + i), p);
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j) v[j] += p[j];
  }
  store_fp32_8(to.x.data + row * to.stride + i, v);
  if constexpr (kLeavesGained != 0) {
    float gain[8];
    unpack_8(load_frozen_16(to.next.gain.data + i), gain);
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 8; ++j) squares = fmaf(v[j], v[j], squares), gain[j] *= v[j];
    store_16(to.next.gained.data + row * to.stride + i, {pack_bf16(gain[0], gain[1]), pack_bf16(gain[2], gain[3]),
                                                         pack_bf16(gain[4], gain[5]), pack_bf16(gain[6], gain[7])});
  }
}

// A row by all `Threads` threads of a block: f(i, v) fills v with its elements i .. i + 7.
template <unsigned Threads, class F>
NODEWRIGHT_DEVICE void put_embedded_row(const EmbeddedOut& to, int64_t row, F f) {
  float squares = 0.0f;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * 8; i < to.stride; i += static_cast<int64_t>(Threads) * 8) {
    float v[8];
    f(i, v);
    put_embedded(to, row, i, v, squares);
  }
  if constexpr (kLeavesGained != 0) {
    squares = block_sum(squares, reinterpret_cast<float*>(shared_memory()));
    if (threadIdx.x == 0) to.next.squares.data[row] = squares;
  }
}

}  // namespace nodewright
