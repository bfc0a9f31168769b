// Norms the heads of q and k where the family does, rotates them by their position, and appends k and v to the paged
// cache.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct RopeAppend {
  In<float> qkv;  // [rows, qkv_stride]: heads q, then kv_heads k, then kv_heads v, head_dim each
  Optional<Frozen<float>> frequencies = {};  // [head_dim / 2] radians a position; empty if kRotate is 0
  Optional<Frozen<bf16>> q_gain = {};        // [head_dim] of the norm of every query head; empty if kHeadNorm is 0
  Optional<Frozen<bf16>> k_gain = {};        // [head_dim] of every key head
  In<int32_t> positions;                     // [rows]
  In<int32_t> sequences;                     // [rows]
  In<int32_t> block_table;                   // [sequences, table_stride] pool pages of each sequence, in order
  In<int32_t> n_live;                        // [1]
  PartialOut<float> q;                       // [rows, heads, head_dim] rotated
  InOut<bf16> kv;                            // one layer's pool (kv_pages.h); each row writes its own position only
  int64_t qkv_stride;                        // a multiple of 4 where head_dim is one of 8
  int64_t table_stride;
  float eps;                         // of the norms
  Optional<Frozen<bf16>> bias = {};  // [elements of a row that count] of the product that left qkv; empty if kBias is 0
  float key_scale = 1;               // of FP8 codes (kv_pages.h)
  float value_scale = 1;
};

// Constants: kHeads, kKvHeads, kHeadDim, kPaddedHeadDim, kCacheFormat, kPageSize; kRotate: 0 where positions are
// learned; kHeadNorm: 1 to norm q and k, as kNorm (kernels_src/residual/norm.h, not a LayerNorm) says; kBias, not
// beside kHeadNorm.
inline constexpr unsigned kRopeThreads = 128;
// Key heads of a block: as many as leave each thread about four pieces of four elements, pairs of them of q and k.
constexpr int64_t rope_heads_of_block(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const int64_t pieces = kv_heads * ((heads / kv_heads + 1) * head_dim / 8 + head_dim / 4);
  const int64_t blocks = pieces <= 4 * kRopeThreads ? 1 : (pieces + 4 * kRopeThreads - 1) / (4 * kRopeThreads);
  return blocks >= kv_heads ? 1 : (kv_heads + blocks - 1) / blocks;
}
constexpr LaunchShape rope_append_shape(unsigned rows, unsigned heads, unsigned kv_heads, int64_t head_dim,
                                        int64_t head_norm) {
  const int64_t of_block = rope_heads_of_block(heads, kv_heads, head_dim);
  const int64_t scales = head_norm == 2   ? 2 + 2 * kRopeThreads / 32
                         : head_norm == 1 ? of_block * (heads / kv_heads + 1)
                                          : 0;
  return {{static_cast<unsigned>((kv_heads + of_block - 1) / of_block), rows, 1},
          {kRopeThreads, 1, 1},
          static_cast<unsigned>(4 * (head_dim + scales))};
}

}  // namespace nodewright
