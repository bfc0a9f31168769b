// (a, b) -> (a cos - b sin, b cos + a sin) for the pairs (i, i + d/2), angle = position * frequency[i], all in fp32.
// Before it, with kHeadNorm, each head v becomes v / rms(v) * gain, a warp a head. Block (h, m): kv head h of row m:
// its query heads, its key and its value.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/kv_pages.h"
#include "kernels_src/norm.h"
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

  // Heads: kGroup of the query, then the key's.
  const auto start_of = [&](int head) {
    return (head == kGroup ? kHeads + kv_head : static_cast<int64_t>(kv_head) * kGroup + head) * kHeadDim;
  };
  float* scales = reinterpret_cast<float*>(shared_memory());  // [kGroup + 1] 1 / rms of a head
  if constexpr (kHeadNorm != 0) {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    for (int head = warp; head <= kGroup; head += static_cast<int>(kRopeThreads / 32)) {
      float squares = 0.0f;
      for (int i = lane; i < kHeadDim; i += 32)
        squares = fmaf(qkv[start_of(head) + i], qkv[start_of(head) + i], squares);
      squares = warp_sum(squares);
      if (lane == 0) scales[head] = 1.0f / sqrtf(squares / static_cast<float>(kHeadDim) + args.eps);
    }
    __syncthreads();
  }
  const auto normed = [&](int head, int i) {
    const float v = qkv[start_of(head) + i];
    if constexpr (kHeadNorm == 0) return v;
    constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
    return v * (scales[head] * (kOffset + to_float((head == kGroup ? args.k_gain : args.q_gain).data[i])));
  };

  for (int i = static_cast<int>(threadIdx.x); i < (kGroup + 1) * kHalf; i += static_cast<int>(kRopeThreads)) {
    const int head = i / kHalf, pair = i % kHalf;
    float first = normed(head, pair), second = normed(head, pair + kHalf);
    if constexpr (kRotate != 0) {
      const float a = first, b = second, angle = static_cast<float>(position) * args.frequencies.data[pair];
      const float c = cosf(angle), s = sinf(angle);
      first = a * c - b * s, second = b * c + a * s;
    }
    if (head == kGroup) {
      key[pair] = to_bf16(first);
      key[pair + kHalf] = to_bf16(second);
    } else {
      float* q = args.q.data + row * kHeads * kHeadDim + start_of(head);
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
