// Where a key or value lives. One layer's pool is [pages, 2, kv_heads, page_size, padded_head_dim]: keys first, then
// values; the tokens of one head and page are contiguous. A block table maps a sequence's pages to pool pages. Within
// the row of a token pieces of 16 bytes change places (kv_in_row).
// Arithmetic only: read by the host, NVRTC and the CPU driver's compiler.
#pragma once

#include "kernels_src/args.h"

#ifdef __CUDACC_RTC__
#define NODEWRIGHT_BOTH __device__ __forceinline__
#else
#define NODEWRIGHT_BOTH
#endif

namespace nodewright {

// What an element is: a bf16, or a byte, the FP8 code (e4m3) of the element divided by a scale of its layer's keys or
// values. Arguments and views name a pool in elements of two bytes, whatever it holds.
enum class CacheFormat : uint8_t { bf16, fp8 };
NODEWRIGHT_BOTH constexpr int64_t element_bytes(CacheFormat format) { return format == CacheFormat::fp8 ? 1 : 2; }
// Elements of a piece of 16 bytes, and of a row that is made of them.
NODEWRIGHT_BOTH constexpr int cache_piece(CacheFormat format) { return static_cast<int>(16 / element_bytes(format)); }
NODEWRIGHT_BOTH constexpr int64_t padded_head_dim(int64_t head_dim, CacheFormat format) {
  return (head_dim + cache_piece(format) - 1) / cache_piece(format) * cache_piece(format);
}

// Element offset of token `position % page_size` of `page` in the pool of one layer; value: 0 = key, 1 = value.
NODEWRIGHT_BOTH constexpr int64_t kv_offset(int64_t page, int value, int64_t kv_head, int64_t slot, int64_t kv_heads,
                                            int64_t page_size, int64_t padded_head_dim) {
  return (((page * 2 + value) * kv_heads + kv_head) * page_size + slot) * padded_head_dim;
}

// Where a row has element d of token `slot`; `piece`: cache_piece(). The same pieces of the eight rows of a matrix are
// in different banks of shared memory when rows that lie together have been copied there as they lie, in one piece
// (docs/attention.md).
NODEWRIGHT_BOTH constexpr int kv_in_row(int slot, int d, int64_t padded_head_dim, int piece = 8) {
  const int pieces = static_cast<int>(padded_head_dim / piece);
  const int places = pieces % 8 == 0 ? 8 : pieces % 4 == 0 ? 4 : pieces % 2 == 0 ? 2 : 1;
  return ((d / piece) ^ (slot / (8 / places) % places)) * piece + d % piece;
}

}  // namespace nodewright
