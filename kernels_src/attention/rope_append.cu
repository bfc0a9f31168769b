// Rotates the heads of q and k, normed before where the family does, and appends k and v to the cache; with kBias those
// of qkv + bias. Block (b, m): kOfBlock key heads of row m, from b * kOfBlock on, each with its query heads and value.
#include "kernels_src/attention/cache_format.cuh"
#include "kernels_src/attention/rope.cuh"
#include "kernels_src/attention/rope_append.h"

namespace nodewright {

constexpr int kWide = kHalf % 4 == 0 ? 4 : 1;  // elements side by side that a thread takes
NODEWRIGHT_DEVICE uint4 load_piece(const float* from) {
  if constexpr (kWide == 4) return load_16(from);
  return {float_to_bits(from[0]), 0u, 0u, 0u};
}
NODEWRIGHT_DEVICE void floats_of(const uint4& piece, float (&v)[4]) {
  v[0] = bits_to_float(piece.x), v[1] = bits_to_float(piece.y);
  v[2] = bits_to_float(piece.z), v[3] = bits_to_float(piece.w);
}
NODEWRIGHT_DEVICE void add_bias(float (&v)[4], const bf16* bias) {
  NODEWRIGHT_UNROLL
  for (int j = 0; j < kWide; ++j) v[j] += to_float(bias[j]);
}
NODEWRIGHT_DEVICE void store_floats(float* to, const float (&v)[4]) {
  if constexpr (kWide == 4)
    store_fp32_4(to, make_float4(v[0], v[1], v[2], v[3]));
  else
    to[0] = v[0];
}
NODEWRIGHT_DEVICE void store_rounded(KvElement* to, const float (&v)[4], float scale) {
  if constexpr (kWide != 4) {
    to[0] = to_cache(v[0], scale);
  } else if constexpr (kFp8Cache) {
    uint32_t four = 0;
    NODEWRIGHT_UNROLL
    for (int j = 0; j < 4; ++j) four |= static_cast<uint32_t>(to_cache(v[j], scale).bits) << 8 * j;
    *reinterpret_cast<uint32_t*>(to) = four;
  } else {
    *reinterpret_cast<uint64_t*>(to) = pack_bf16(v[0], v[1]) | static_cast<uint64_t>(pack_bf16(v[2], v[3])) << 32;
  }
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(rope_append, RopeAppend, kRopeThreads) {
  static_assert(kBias == 0 || kHeadNorm == 0, "scales of heads are those of qkv as it is");
  constexpr int kThreads = static_cast<int>(kRopeThreads), kGroup = static_cast<int>(kHeads / kKvHeads);
  constexpr int kOfBlock = static_cast<int>(rope_heads_of_block(kHeads, kKvHeads, kHeadDim));
  constexpr int kPieces = kHalf / kWide, kValuePieces = static_cast<int>(kHeadDim) / kWide;  // of half a head, a value
  constexpr auto rounds = [](int pieces) { return (pieces + kThreads - 1) / kThreads; };
  constexpr int kEach = rounds(kOfBlock * (kGroup + 1) * kPieces), kValues = rounds(kOfBlock * kValuePieces);
  constexpr int kTurns = rounds(kHalf);
  const int thread = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.y);
  const int first_head = static_cast<int>(blockIdx.x) * kOfBlock, kv_left = static_cast<int>(kKvHeads) - first_head;
  const int kv_heads = kv_left < kOfBlock ? kv_left : kOfBlock;
  float* const cosines = reinterpret_cast<float*>(shared_memory());  // [kHalf]
  float* const sines = cosines + kHalf;                              // [kHalf]
  float* const scales = sines + kHalf;  // with a norm of each head [kOfBlock * (kGroup + 1)], of all of q and of k [2]
  Rotation rotations[kTurns];
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kTurns; ++e)
    if (kRotate != 0 && thread + e * kThreads < kHalf)
      rotations[e] = rotation_of(args.frequencies.data, thread + e * kThreads);
  release_dependents();
  wait_for_inputs();
  const float* const qkv = args.qkv.data + row * args.qkv_stride;
  // The heads of the block: for each key head those of the query, then the key's.
  const auto is_key = [](int head) { return head % (kGroup + 1) == kGroup; };
  const auto head_of = [&](int head) {
    const int kv_head = first_head + head / (kGroup + 1);
    return is_key(head) ? static_cast<int>(kHeads) + kv_head : kv_head * kGroup + head % (kGroup + 1);
  };
  const auto start_of = [&](int head) { return head_of(head) * static_cast<int>(kHeadDim); };
  const int value_start = static_cast<int>((kHeads + kKvHeads + first_head) * kHeadDim);
  // Asked for before anything is known of the row: loads that follow each other would take most of the kernel's time.
  const int live = args.n_live.data[0], position = args.positions.data[row], sequence = args.sequences.data[row];
  uint4 first[kEach], second[kEach], values[kValues];
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kEach; ++e) {
    const int i = thread + e * kThreads, head = i / kPieces, at = i % kPieces * kWide;
    if (head >= kv_heads * (kGroup + 1)) continue;
    first[e] = load_piece(qkv + start_of(head) + at);
    second[e] = load_piece(qkv + start_of(head) + at + kHalf);
  }
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kValues; ++e)
    if (const int i = thread + e * kThreads; i < kv_heads * kValuePieces)
      values[e] = load_piece(qkv + value_start + i * kWide);
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kEach; ++e) forget_origin(first[e]), forget_origin(second[e]);
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kValues; ++e) forget_origin(values[e]);
  if (row >= live) return;
  const int page = args.block_table.data[sequence * args.table_stride + position / kPageSize];
  const int slot = static_cast<int>(position % kPageSize);
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kTurns; ++e)
    if (const int pair = thread + e * kThreads; kRotate != 0 && pair < kHalf) {
      const Turn turn = turn_of(position, rotations[e]);
      cosines[pair] = turn.cosine, sines[pair] = turn.sine;
    }
  if constexpr (kWidthNorm)
    width_scales<kThreads / 32>(scales, 1, args.eps, qkv, scales + 2);
  else
    head_scales<kOfBlock*(kGroup + 1), kThreads / 32>(scales, kv_heads * (kGroup + 1), args.eps,
                                                      [&](int head) { return qkv + start_of(head); });
  __syncthreads();
  const auto kept = [&](int value, int kv_head, int d) {
    return pool_of(args.kv.data) + kv_offset(page, value, kv_head, slot, kKvHeads, kPageSize, kPaddedHeadDim) +
           place_in_row(slot, d);
  };
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kEach; ++e) {
    const int i = thread + e * kThreads, head = i / kPieces, at = i % kPieces * kWide;
    if (head >= kv_heads * (kGroup + 1)) continue;
    float low[4], high[4];
    floats_of(first[e], low);
    floats_of(second[e], high);
    if constexpr (kBias != 0) {
      add_bias(low, args.bias.data + start_of(head) + at);
      add_bias(high, args.bias.data + start_of(head) + at + kHalf);
    }
    const int kv_head = first_head + head / (kGroup + 1);
    const bf16* gain = nullptr;
    if constexpr (kHeadNorm != 0)
      gain = is_key(head) ? args.k_gain.data + gain_of_head(kv_head) : args.q_gain.data + gain_of_head(head_of(head));
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kWide; ++j) {
      Pair v = {low[j], high[j]};
      if constexpr (kHeadNorm != 0) {
        const float scale = scales[kWidthNorm ? static_cast<int>(is_key(head)) : head];
        v = {normed_element(v.first, scale, gain[at + j]), normed_element(v.second, scale, gain[at + j + kHalf])};
      }
      if constexpr (kRotate != 0) v = turned(v, {cosines[at + j], sines[at + j]});
      low[j] = v.first, high[j] = v.second;
    }
    if (is_key(head)) {
      store_rounded(kept(0, kv_head, at), low, args.key_scale);
      store_rounded(kept(0, kv_head, at + kHalf), high, args.key_scale);
    } else {
      float* const q = args.q.data + row * kHeads * kHeadDim + start_of(head) + at;
      store_floats(q, low);
      store_floats(q + kHalf, high);
    }
  }
  NODEWRIGHT_UNROLL
  for (int e = 0; e < kValues; ++e) {
    const int i = thread + e * kThreads;
    if (i >= kv_heads * kValuePieces) break;
    float v[4];
    floats_of(values[e], v);
    if constexpr (kBias != 0) add_bias(v, args.bias.data + value_start + i * kWide);
    store_rounded(kept(1, first_head + i / kValuePieces, i % kValuePieces * kWide), v, args.value_scale);
  }
  constexpr int kPadding = static_cast<int>(kPaddedHeadDim - kHeadDim);
  if constexpr (kPadding > 0)
    for (int i = thread; i < kv_heads * kPadding; i += kThreads)
      for (int value = 0; value < 2; ++value)
        *kept(value, first_head + i / kPadding, static_cast<int>(kHeadDim) + i % kPadding) = KvElement{0};
}
