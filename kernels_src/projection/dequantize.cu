// y[n, k] = round(W[n, k] * its scale). Thread t of block b: word b * 256 + t of 16 bytes.
#include "kernels_src/device/tensor.cuh"
#include "kernels_src/product/format/weights.cuh"
#include "kernels_src/projection/dequantize.h"

namespace nodewright {

// Sixteen columns of FP8.
struct Fp8Word {
  static constexpr int64_t kColumns = 16;
  uint4 codes{};
  float scale = 0.0f;

  NODEWRIGHT_DEVICE void load(const Dequantize& args, int64_t row, int64_t word) {
    codes = load_once_16(reinterpret_cast<const unsigned char*>(args.weight.data) + row * kStride + word * kColumns);
    const float* const scales = scales_of<kStride>(args.weight.data, args.outputs);
    scale = kScaledBlocks
                ? scales[first_scale<kStride>(static_cast<int>(row)) + word * kColumns / WeightLayout::kScaleBlock]
                : scales[row];
  }
  NODEWRIGHT_DEVICE void store(bf16* of_row, int64_t word) const {
    store_eight(of_row + word * kColumns, codes.x, codes.y);
    store_eight(of_row + word * kColumns + 8, codes.z, codes.w);
  }

 private:
  NODEWRIGHT_DEVICE void store_eight(bf16* at, uint32_t low, uint32_t high) const {
    float first[4], second[4];
    unpack_fp8_4(low, first);
    unpack_fp8_4(high, second);
    store_16(at,
             uint4{round_pair(first[0] * scale, first[1] * scale), round_pair(first[2] * scale, first[3] * scale),
                   round_pair(second[0] * scale, second[1] * scale), round_pair(second[2] * scale, second[3] * scale)});
  }
};

// A word of codes with groups.
template <class Format>
struct GroupedWord {
  static constexpr int64_t kColumns = 8 * Format::kChunksOfWord;
  uint4 codes{};
  uint32_t groups[kHasGroups ? kLayout.group_words_of_word() : 1]{};

  NODEWRIGHT_DEVICE void load(const Dequantize& args, int64_t row, int64_t word) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(args.weight.data);
    codes = load_once_16(bytes + row * bytes_of_columns(kStride) + word * 16);
    load_group_words<Format::kBytesOfWord>(groups,
                                           groups_of<kStride>(scales_of<kStride>(args.weight.data, args.outputs), row) +
                                               word * kColumns / Format::kColumnsOfGroups * Format::kBytesOfWord);
  }
  NODEWRIGHT_DEVICE void store(bf16* of_row, int64_t word) const {
    NODEWRIGHT_UNROLL
    for (int c = 0; c < Format::kChunksOfWord; ++c) {
      const EightWeights w = weights_of<Format>(codes, c, groups);
      store_16(of_row + column_of_chunk(static_cast<int>(word * kColumns), c),
               uint4{round_pair(w.of[0], w.of[1]), round_pair(w.of[2], w.of[3]), round_pair(w.of[4], w.of[5]),
                     round_pair(w.of[6], w.of[7])});
    }
  }
};

template <class Format>
struct WordOf {
  using Type = GroupedWord<Format>;
};
template <>
struct WordOf<Fp8Weights> {
  using Type = Fp8Word;
};
using Word = WordOf<Weights>::Type;

}  // namespace nodewright

NODEWRIGHT_KERNEL(dequantize, Dequantize, kDequantizeThreads) {
  constexpr int64_t kWords = kStride / Word::kColumns;  // of a row
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kDequantizeThreads + threadIdx.x, row = number / kWords,
                word = number % kWords;
  Word w;
  if (row < args.outputs) w.load(args, row, word);
  release_dependents();
  wait_for_inputs();
  if (row < args.outputs) w.store(args.y.data + row * kStride, word);
}
