// Attention of successive new tokens of one sequence over a cache that holds every key of the context at a fixed
// address; appends their keys and values. For heads of at most 256 elements and contexts of a few hundred keys: one
// warp a head and row. attend.h is the paged one for long contexts.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct DenseAttend {
  In<float> qkv;          // [rows, qkv_stride]: q, k, v of a token, each [heads, head_dim]
  In<int32_t> positions;  // [rows], row m's being positions[0] + m; keys 0 .. position are attended
  In<int32_t> n_live;     // [1] rows that count
  InOut<float> cache;     // [2 (keys, values), heads, context, head_dim]: a block writes its own token's slot and reads
                          // slots below positions[0]; the keys and values between come from qkv
  PartialOut<float> y;    // [rows, y_stride]: heads * head_dim elements a row
  int64_t context;        // slots of the cache
  int64_t qkv_stride;     // elements between two rows
  int64_t y_stride;
  float scale;  // of q . k, times log2(e): probabilities are powers of two
};

// Constants: kHeads, kHeadDim, kSlices.
struct DenseAttendShape {
  int64_t rows = 1, heads = 1, head_dim = 8;

  // Lanes that share a key: 8 elements each.
  constexpr int64_t slices() const {
    int64_t n = 1;
    while (n * 8 < head_dim) n *= 2;
    return n;
  }
  constexpr LaunchShape launch_shape() const {
    return {{static_cast<unsigned>(heads), static_cast<unsigned>(rows), 1}, {32, 1, 1}, 0};
  }
};

inline constexpr unsigned kDenseAttendThreads = 32;

}  // namespace nodewright
