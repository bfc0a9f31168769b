// Where a key or value lives. One layer's pool is [pages, 2, kv_heads, page_size, padded_head_dim] bf16: keys first,
// then values; the tokens of one head and page are contiguous. A block table maps a sequence's pages to pool pages.
// Within the row of a token pieces of 16 bytes change places (kv_in_row).
// Arithmetic only: read by the host, NVRTC and the CPU driver's compiler.
#pragma once

#include "kernels_src/args.h"

#ifdef __CUDACC_RTC__
#define NODEWRIGHT_BOTH __device__ __forceinline__
#else
#define NODEWRIGHT_BOTH
#endif

namespace nodewright {

// Element offset of token `position % page_size` of `page` in the pool of one layer; value: 0 = key, 1 = value.
NODEWRIGHT_BOTH constexpr int64_t kv_offset(int64_t page, int value, int64_t kv_head, int64_t slot, int64_t kv_heads,
                                            int64_t page_size, int64_t padded_head_dim) {
  return (((page * 2 + value) * kv_heads + kv_head) * page_size + slot) * padded_head_dim;
}

// Where a row has element d of token `slot`. The same pieces of the eight rows of a matrix are in different banks of
// shared memory when rows that lie together have been copied there as they lie, in one piece (docs/attention.md).
NODEWRIGHT_BOTH constexpr int kv_in_row(int slot, int d, int64_t padded_head_dim) {
  const int pieces = static_cast<int>(padded_head_dim / 8);
  const int places = pieces % 8 == 0 ? 8 : pieces % 4 == 0 ? 4 : pieces % 2 == 0 ? 2 : 1;
  return ((d / 8) ^ (slot / (8 / places) % places)) * 8 + d % 8;
}

}  // namespace nodewright
