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

// Four times eight columns of int4, 32 apart.
struct Int4Word {
  static constexpr int64_t kColumns = 32, kGroup = kScaleColumns == 0 ? kStride : kScaleColumns;
  uint4 codes{};
  uint32_t scales[4]{};

  NODEWRIGHT_DEVICE void load(const Dequantize& args, int64_t row, int64_t word) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(args.weight.data);
    codes = load_once_16(bytes + row * (kStride / 2) + word * 16);
    const auto* const words = reinterpret_cast<const uint32_t*>(bytes + args.outputs * (kStride / 2));
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 4; ++i) scales[i] = words[row * kGroupStride<kStride> + column(word, i) / kGroup];
  }
  NODEWRIGHT_DEVICE void store(bf16* of_row, int64_t word) const {
    store_eight(of_row + column(word, 0), codes.x, scales[0]);
    store_eight(of_row + column(word, 1), codes.y, scales[1]);
    store_eight(of_row + column(word, 2), codes.z, scales[2]);
    store_eight(of_row + column(word, 3), codes.w, scales[3]);
  }

 private:
  NODEWRIGHT_DEVICE static int64_t column(int64_t word, int piece) {
    return word / 4 * 128 + word % 4 * 8 + 32 * piece;
  }
  NODEWRIGHT_DEVICE static void store_eight(bf16* at, uint32_t eight, uint32_t of_group) {
    const float scale = bits_to_float(of_group & 0xffffff00u), zero = static_cast<float>(of_group & 0xffu);
    const auto pair = [&](int p) {
      return round_pair((static_cast<float>(eight >> 4 * p & 0xfu) - zero) * scale,
                        (static_cast<float>(eight >> (4 * p + 16) & 0xfu) - zero) * scale);
    };
    store_16(at, uint4{pair(0), pair(1), pair(2), pair(3)});
  }
};

template <int64_t kCode>
struct WordOf {
  using Type = Fp8Word;
};
template <>
struct WordOf<static_cast<int64_t>(WeightCode::int4)> {
  using Type = Int4Word;
};
using Word = WordOf<kFormat>::Type;

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
