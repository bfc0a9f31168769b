// y[n, k] = round(W[n, k] * its scale). Thread t of block b: word b * 256 + t of 16 columns.
#include "kernels_src/device/tensor.cuh"
#include "kernels_src/product/format/weights.cuh"
#include "kernels_src/projection/dequantize.h"

NODEWRIGHT_KERNEL(dequantize, Dequantize, kDequantizeThreads) {
  constexpr int64_t kWords = kStride / 16;  // of a row
  const int64_t word = static_cast<int64_t>(blockIdx.x) * kDequantizeThreads + threadIdx.x, row = word / kWords,
                column = word % kWords * 16;
  uint4 codes{};
  float scale = 0.0f;
  if (row < args.outputs) {
    codes = load_once_16(reinterpret_cast<const unsigned char*>(args.weight.data) + row * kStride + column);
    const float* const scales = scales_of<kStride>(args.weight.data, args.outputs);
    scale = kScaledBlocks ? scales[first_scale<kStride>(static_cast<int>(row)) + column / WeightLayout::kScaleBlock]
                          : scales[row];
  }
  release_dependents();
  wait_for_inputs();
  if (row >= args.outputs) return;
  bf16* const to = args.y.data + row * kStride + column;
  const auto store = [&](bf16* at, uint32_t low, uint32_t high) {
    float first[4], second[4];
    unpack_fp8_4(low, first);
    unpack_fp8_4(high, second);
    store_16(at,
             uint4{round_pair(first[0] * scale, first[1] * scale), round_pair(first[2] * scale, first[3] * scale),
                   round_pair(second[0] * scale, second[1] * scale), round_pair(second[2] * scale, second[3] * scale)});
  };
  store(to, codes.x, codes.y);
  store(to + 8, codes.z, codes.w);
}
