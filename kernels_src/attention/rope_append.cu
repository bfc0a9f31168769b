// Rotates the heads of q and k, normed before where the family does, and appends k and v to the cache; with kBias those
// of qkv + bias. Block (h, m): kv head h of row m: its query heads, its key and its value.
#include "kernels_src/attention/kv_pages.h"
#include "kernels_src/attention/rope.cuh"
#include "kernels_src/attention/rope_append.h"

NODEWRIGHT_KERNEL(rope_append, RopeAppend, kRopeThreads) {
  constexpr int kGroup = static_cast<int>(kHeads / kKvHeads), kThreads = static_cast<int>(kRopeThreads);
  static_assert(kBias == 0 || kHeadNorm == 0, "scales of heads are those of qkv as it is");
  constexpr int kEach = ((kGroup + 1) * kHalf + kThreads - 1) / kThreads;  // pairs of a thread
  constexpr int kValues = static_cast<int>((kPaddedHeadDim + kThreads - 1) / kThreads);
  release_dependents();
  wait_for_inputs();
  const int kv_head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  const float* qkv = args.qkv.data + row * args.qkv_stride;
  // Heads: kGroup of the query, then the key's.
  const auto start_of = [&](int head) {
    return (head == kGroup ? kHeads + kv_head : static_cast<int64_t>(kv_head) * kGroup + head) * kHeadDim;
  };
  // Asked for before anything is known of the row: loads that follow each other would take most of the kernel's time.
  const int live = args.n_live.data[0], position = args.positions.data[row], sequence = args.sequences.data[row];
  Pair pairs[kEach];
  Rotation rotations[kEach];
  bf16 gains[kEach][2];
  float values[kValues];
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kEach; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads, head = i / kHalf, pair = i % kHalf;
    const float* const from = qkv + start_of(head <= kGroup ? head : 0);
    if constexpr (kHeadNorm != 0) {
      const bf16* const gain = head < kGroup ? args.q_gain.data + gain_of_head(kv_head * kGroup + head)
                                             : args.k_gain.data + gain_of_head(kv_head);
      gains[e][0] = gain[pair], gains[e][1] = gain[pair + kHalf];
    }
    pairs[e] = {from[pair], from[pair + kHalf]};
    if constexpr (kBias != 0) {
      const bf16* const bias = args.bias.data + start_of(head <= kGroup ? head : 0);
      pairs[e].first += to_float(bias[pair]);
      pairs[e].second += to_float(bias[pair + kHalf]);
    }
    rotations[e] = kRotate != 0 ? rotation_of(args.frequencies.data, pair) : Rotation{0.0f, 1.0f};
  }
  const int64_t value_at = (kHeads + kKvHeads + kv_head) * kHeadDim;
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kValues; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads, at = i < kHeadDim ? i : 0;
    values[e] = qkv[value_at + at];
    if constexpr (kBias != 0) values[e] += to_float(args.bias.data[value_at + at]);
  }
  if (row >= live) return;
  const int page = args.block_table.data[sequence * args.table_stride + position / kPageSize];
  float* scales = reinterpret_cast<float*>(shared_memory());  // [kGroup + 1]
  if constexpr (kWidthNorm)
    width_scales<kRopeThreads / 32>(scales, kGroup, args.eps, qkv, scales + kGroup + 1);
  else
    head_scales<kGroup + 1, kRopeThreads / 32>(scales, kGroup + 1, args.eps,
                                               [&](int head) { return qkv + start_of(head); });
  bf16* key = args.kv.data + kv_offset(page, 0, kv_head, position % kPageSize, kKvHeads, kPageSize, kPaddedHeadDim);
  bf16* value = args.kv.data + kv_offset(page, 1, kv_head, position % kPageSize, kKvHeads, kPageSize, kPaddedHeadDim);
  const auto in_row = [&](int d) { return kv_in_row(static_cast<int>(position % kPageSize), d, kPaddedHeadDim); };

  NODEWRIGHT_UNROLL
  for (int e = 0; e < kEach; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads, head = i / kHalf, pair = i % kHalf;
    if (head > kGroup) continue;
    Pair& v = pairs[e];
    if constexpr (kHeadNorm != 0)
      v = {normed_element(v.first, scales[head], gains[e][0]), normed_element(v.second, scales[head], gains[e][1])};
    if constexpr (kRotate != 0) v = turned(v, turn_of(position, rotations[e]));
    if (head == kGroup) {
      key[in_row(pair)] = to_bf16(v.first);
      key[in_row(pair + kHalf)] = to_bf16(v.second);
    } else {
      float* q = args.q.data + row * kHeads * kHeadDim + start_of(head);
      q[pair] = v.first;
      q[pair + kHalf] = v.second;
    }
  }
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kValues; ++e) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads;
    if (i >= kPaddedHeadDim) break;
    value[in_row(i)] = to_bf16(i < kHeadDim ? values[e] : 0.0f);
    if (i >= kHeadDim) key[in_row(i)] = to_bf16(0.0f);
  }
}
