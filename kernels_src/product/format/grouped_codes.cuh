// What formats share whose codes are integers without a sign, with a scale for each group of a row's columns
// (product/format/weight_layout.h): how codes of 4 and of 8 bits lie in words, and what a group makes of them.
#pragma once

#include "kernels_src/device/tensor.cuh"
#include "kernels_src/product/format/groups.cuh"

namespace nodewright {

#ifdef __CUDACC_RTC__
// a * b + c, of pairs of fp16.
NODEWRIGHT_DEVICE uint32_t fma_halves(uint32_t a, uint32_t b, uint32_t c) {
  asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(a) : "r"(b), "r"(c));
  return a;
}
NODEWRIGHT_DEVICE uint32_t twice_low_half(uint32_t pair) { return __byte_perm(pair, 0u, 0x1010u); }
NODEWRIGHT_DEVICE uint32_t twice_high_half(uint32_t pair) { return __byte_perm(pair, 0u, 0x3232u); }
#endif

// What a group shares, twice each in fp16.
struct HalfGroup {
  uint32_t scale, offset;
};

// Two elements a byte, in memory.
struct int4_pair {
  uint8_t bits;
};

// Codes of 4 bits.
struct NibbleCodes {
  using Element = int4_pair;
  using Eight = uint32_t;  // codes, not yet numbers
  static constexpr int kElementBytes = 1, kColumnsOfElement = 2;
  static constexpr int kXPadding = 64;  // as of Bf16Weights, as are the columns of lanes
  NODEWRIGHT_DEVICE static constexpr int step_column(int step) { return step * 32; }
  static constexpr int kLaneColumns = 8;
  static constexpr int kChunksOfWord = 4;
  static constexpr int kColumnsOfWords = 128;  // of which a word has some

  NODEWRIGHT_DEVICE static Eight eight(uint4 word, int chunk) {
    return chunk == 0 ? word.x : chunk == 1 ? word.y : chunk == 2 ? word.z : word.w;
  }
  NODEWRIGHT_DEVICE static float code(Eight eight, int i) {
    return static_cast<float>(eight >> (i / 2 * 4 + i % 2 * 16) & 0xfu);
  }

  // A lane's words of a span, where they lie, and the codes of a step.
  using SpanWord = uint2;
  NODEWRIGHT_DEVICE static int span_byte(int column) {
    return column / 128 * 64 + lane_of_warp() % 4 * 16 + column % 128 / 8;
  }
  NODEWRIGHT_DEVICE static Eight of_step(SpanWord words, int s) { return s == 0 ? words.x : words.y; }
#ifdef __CUDACC_RTC__
  // Pair `p` in fp16: 1024 + code or 1024 + 16 code, brought to the code, exactly.
  NODEWRIGHT_DEVICE static uint32_t pair_in_halves(Eight eight, int p) {
    const uint32_t codes = p < 2 ? eight : eight >> 8;
    if (p % 2 == 0) return fma_halves((codes & 0x000f000fu) | 0x64006400u, 0x3c003c00u, 0xe400e400u);
    return fma_halves((codes & 0x00f000f0u) | 0x64006400u, 0x2c002c00u, 0xd400d400u);
  }
#endif
};

// Chunk `chunk` of a word in four pairs of fp16: codes times 2^-24, exactly, and times 2^-20 in the odd pairs.
NODEWRIGHT_DEVICE uint4 halves_of_int4(uint32_t eight) {
  const uint32_t upper = eight >> 8;
  return {eight & 0x000f000fu, eight & 0x00f000f0u, upper & 0x000f000fu, upper & 0x00f000f0u};
}
NODEWRIGHT_DEVICE uint4 halves_of(NibbleCodes, uint4 word, int chunk, const uint32_t*) {
  return halves_of_int4(NibbleCodes::eight(word, chunk));
}

// A byte each, in memory.
struct int8_code {
  uint8_t bits;
};

// Codes of 8 bits, in places of FP8's.
struct ByteCodes {
  using Element = int8_code;
  using Eight = uint2;
  static constexpr int kElementBytes = 1, kColumnsOfElement = 1;
  static constexpr int kXPadding = 16;
  NODEWRIGHT_DEVICE static constexpr int step_column(int step) { return step / 2 * 64 + step % 2 * 8; }
  static constexpr int kLaneColumns = 16;
  static constexpr int kChunksOfWord = 2;
  static constexpr int kColumnsOfWords = 16;

  NODEWRIGHT_DEVICE static Eight eight(uint4 word, int chunk) {
    return chunk == 0 ? uint2{word.x, word.y} : uint2{word.z, word.w};
  }
  NODEWRIGHT_DEVICE static float code(Eight eight, int i) {
    return static_cast<float>((i < 4 ? eight.x : eight.y) >> i % 4 * 8 & 0xffu);
  }

  using SpanWord = uint4;
  NODEWRIGHT_DEVICE static int span_byte(int column) { return column + lane_of_warp() % 4 * 16; }
  NODEWRIGHT_DEVICE static Eight of_step(SpanWord words, int s) { return eight(words, s); }
#ifdef __CUDACC_RTC__
  NODEWRIGHT_DEVICE static uint32_t pair_in_halves(Eight eight, int p) {
    const uint32_t raised = __byte_perm(p < 2 ? eight.x : eight.y, 0x64646464u, p % 2 == 0 ? 0x4140u : 0x4342u);
    return fma_halves(raised, 0x3c003c00u, 0xe400e400u);
  }
#endif
};

// The eight weights of a chunk of a word, and sum += weights . x, in order. words: of the word's groups.
struct EightWeights {
  float of[8];
};
template <class Weights>
NODEWRIGHT_DEVICE EightWeights weights_of(uint4 word, int chunk, const uint32_t* words) {
  const auto group = Weights::group(words, chunk * Weights::kGroupsOfWord / Weights::kChunksOfWord);
  const typename Weights::Eight codes = Weights::eight(word, chunk);
  EightWeights weights;
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 8; ++i) weights.of[i] = group.value(Weights::code(codes, i));
  return weights;
}
NODEWRIGHT_DEVICE float dot_8(const EightWeights& w, const float (&x)[8], float sum) {
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 8; ++i) sum = fmaf(w.of[i], x[i], sum);
  return sum;
}

// The step's eight columns of a lane as operands: weights, in fp16 or rounded to bf16. groups: the lane's in the span.
template <bool kHalves, class Weights>
NODEWRIGHT_DEVICE uint4 scaled_operands(typename Weights::Eight eight, const uint32_t* groups, int s) {
#ifdef __CUDACC_RTC__
  if constexpr (kHalves) {
    const HalfGroup of = Weights::half_group(groups, s);
    const auto pair = [&](int p) { return fma_halves(Weights::pair_in_halves(eight, p), of.scale, of.offset); };
    return {pair(0), pair(1), pair(2), pair(3)};
  }
#endif
  const auto of = Weights::group(groups, s);
  const auto pair = [&](int p) {
    return round_pair(of.value(Weights::code(eight, 2 * p)), of.value(Weights::code(eight, 2 * p + 1)));
  };
  return {pair(0), pair(1), pair(2), pair(3)};
}

#ifdef __CUDACC_RTC__
// Chunk `chunk` of a word, whose group is the lane's own, in four pairs of fp16: weights.
template <class Weights>
requires(Weights::kColumnsOfGroup > 0 && !Weights::kSharedByLanes) NODEWRIGHT_DEVICE uint4
    halves_of(Weights, uint4 word, int chunk, const uint32_t* groups) {
  return scaled_operands<true, Weights>(Weights::eight(word, chunk), groups, 0);
}
#endif

// A lane's words of a span of W's rows g and g + 8, as operands. load(row): its word; groups(row): where what the
// groups of its columns share begins.
template <class Weights, int kRows, bool kHalves>
struct GroupedSpan {
  typename Weights::SpanWord words[kRows / 8];
  uint32_t groups[kRows / 8][(Weights::kBytesOfSpan + 3) / 4];
  template <class Load, class GroupsOf>
  NODEWRIGHT_DEVICE GroupedSpan(const Load& load, const GroupsOf& groups_of_row) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kRows / 8; ++i) {
      const int row = lane_of_warp() / 4 + 8 * i;
      words[i] = load(row);
      load_group_words<Weights::kBytesOfSpan>(groups[i], groups_of_row(row));
    }
  }
  NODEWRIGHT_DEVICE uint4 operator()(int s, int row) const {
    return scaled_operands<kHalves, Weights>(Weights::of_step(words[row / 8], s), groups[row / 8], s);
  }
};

}  // namespace nodewright
