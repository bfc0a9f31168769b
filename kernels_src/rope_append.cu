// (a, b) -> (a cos - b sin, b cos + a sin) for the pairs (i, i + d/2), angle = position * frequency[i], all in fp32.
// Block (h, m): kv head h of row m: its query heads, its key and its value.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/kv_pages.h"
#include "kernels_src/rope_append.h"

NODEWRIGHT_KERNEL(rope_append, RopeAppend, kRopeThreads) {
  constexpr int kGroup = static_cast<int>(kHeads / kKvHeads), kHalf = static_cast<int>(kHeadDim / 2);
  release_dependents();
  wait_for_inputs();
  const int kv_head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  if (row >= args.n_live.data[0]) return;
  const int position = args.positions.data[row];
  const int page = args.block_table.data[row * args.table_stride + position / kPageSize];
  const float* qkv = args.qkv.data + row * args.qkv_stride;
  bf16* key = args.kv.data + kv_offset(page, 0, kv_head, position % kPageSize, kKvHeads, kPageSize, kPaddedHeadDim);
  bf16* value = args.kv.data + kv_offset(page, 1, kv_head, position % kPageSize, kKvHeads, kPageSize, kPaddedHeadDim);

  // Pairs: kGroup query heads, then the key head.
  for (int i = static_cast<int>(threadIdx.x); i < (kGroup + 1) * kHalf; i += static_cast<int>(kRopeThreads)) {
    const int head = i / kHalf, pair = i % kHalf;
    const bool is_key = head == kGroup;
    const int64_t source = (is_key ? kHeads + kv_head : static_cast<int64_t>(kv_head) * kGroup + head) * kHeadDim;
    const float a = qkv[source + pair], b = qkv[source + pair + kHalf];
    const float angle = static_cast<float>(position) * args.frequencies.data[pair];
    const float c = cosf(angle), s = sinf(angle);
    const float first = a * c - b * s, second = b * c + a * s;
    if (is_key) {
      key[pair] = to_bf16(first);
      key[pair + kHalf] = to_bf16(second);
    } else {
      float* q = args.q.data + row * kHeads * kHeadDim + source;
      q[pair] = first;
      q[pair + kHalf] = second;
    }
  }
  const float* v = qkv + (kHeads + kKvHeads + kv_head) * kHeadDim;
  for (int i = static_cast<int>(threadIdx.x); i < kPaddedHeadDim; i += static_cast<int>(kRopeThreads)) {
    value[i] = to_bf16(i < kHeadDim ? v[i] : 0.0f);
    if (i >= kHeadDim) key[i] = to_bf16(0.0f);
  }
}
