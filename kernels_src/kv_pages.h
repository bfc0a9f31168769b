// Where a key or value lives. One layer's pool is [pages, 2, kv_heads, page_size, padded_head_dim] bf16: keys first,
// then values; the tokens of one head and page are contiguous. A block table maps a sequence's pages to pool pages.
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

}  // namespace nodewright
