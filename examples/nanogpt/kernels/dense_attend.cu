// y = softmax(q k^T * scale) v over keys 0 .. position. Block (h, m): head h of row m, one warp. Lane l holds slice
// l / kKeys (8 elements) of the keys l % kKeys, + kKeys, ...: each lane keeps a running maximum, sum and weighted
// values of its keys, and these meet in a butterfly at the end. The order of the sums depends on the position only.
#include "examples/nanogpt/kernels/dense_attend.h"
#include "kernels_src/device/numeric.cuh"

namespace nodewright {

constexpr int kKeys = static_cast<int>(32 / kSlices);  // in flight in a warp
constexpr int kUnroll = 2;                             // that a lane requests at once
constexpr int kHead = static_cast<int>(kHeadDim);
static_assert(kSlices * kKeys == 32 && kSlices * 8 >= kHeadDim);

// Elements d0 .. d0 + 7 of a head, zeros past its end. Rows of heads are 16-byte aligned where kHead allows it.
NODEWRIGHT_DEVICE void load_slice(float (&to)[8], const float* head, int d0) {
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 8; i += 4) {
    if (kHead % 4 == 0 && d0 + i < kHead) {
      const uint4 v = load_16(head + d0 + i);
      to[i] = bits_to_float(v.x), to[i + 1] = bits_to_float(v.y);
      to[i + 2] = bits_to_float(v.z), to[i + 3] = bits_to_float(v.w);
    } else {
      NODEWRIGHT_UNROLL
      for (int j = i; j < i + 4; ++j) to[j] = d0 + j < kHead ? head[d0 + j] : 0.0f;
    }
  }
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(dense_attend, DenseAttend, kDenseAttendThreads) {
  release_dependents();
  wait_for_inputs();
  const int head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  const int live = args.n_live.data[0], first = args.positions.data[0], position = first + row;
  if (row >= live || position < 0 || position >= args.context) return;
  const int lane = static_cast<int>(threadIdx.x), slot = lane % kKeys, d0 = lane / kKeys * 8;

  // Where the key of position j lies, for j <= position; its value lies `value_at` elements behind.
  const int64_t width = kHeads * kHead, cache_values = kHeads * args.context * kHead;
  const float* new_keys = args.qkv.data + width + head * kHead;
  float* cache_keys = args.cache.data + head * args.context * kHead;

  float q[8], values[8] = {}, top = -INFINITY, sum = 0.0f;
  load_slice(q, args.qkv.data + row * args.qkv_stride + head * kHead, d0);
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 8; ++i) q[i] *= args.scale;

  for (int key0 = 0; key0 <= position; key0 += kKeys * kUnroll) {
    float k[kUnroll][8], v[kUnroll][8];
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int j = key0 + u * kKeys + slot;
      const bool is_new = j >= first;
      const float* key =
          is_new ? new_keys + (j - first) * args.qkv_stride : cache_keys + static_cast<int64_t>(j) * kHead;
      if (j <= position) {
        load_slice(k[u], key, d0);
        load_slice(v[u], key + (is_new ? width : cache_values), d0);
      } else {
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) k[u][i] = v[u][i] = 0.0f;
      }
    }
    NODEWRIGHT_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      float score = 0.0f;
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i) score = fmaf(q[i], k[u][i], score);
      NODEWRIGHT_UNROLL
      for (int offset = kKeys; offset < 32; offset *= 2) score += __shfl_xor_sync(0xffffffffu, score, offset);
      if (key0 + u * kKeys + slot > position) continue;
      const float next = fmaxf(top, score);
      const float keep = exp2f(top - next), add = exp2f(score - next);
      top = next;
      sum = fmaf(sum, keep, add);
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i) values[i] = fmaf(add, v[u][i], values[i] * keep);
    }
  }

  // Lanes -> head. A lane that saw no key has maximum -inf and weighs nothing.
  const float weight = exp2f(top - warp_max(top));
  float sums[9];
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 8; ++i) sums[i] = values[i] * weight;
  sums[8] = sum * weight;
  group_sums<kKeys>(sums);
  if (slot == 0) {
    float* y = args.y.data + row * args.y_stride + head * kHead;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i)
      if (d0 + i < kHead) y[d0 + i] = sums[i] / sums[8];
  }

  const float* mine = new_keys + row * args.qkv_stride;
  float* to = cache_keys + static_cast<int64_t>(position) * kHead;
  for (int d = lane; d < kHead; d += 32) {
    to[d] = mine[d];
    to[cache_values + d] = mine[width + d];
  }
}
