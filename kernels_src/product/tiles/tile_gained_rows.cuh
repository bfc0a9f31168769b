// Rows of x that the kernel before has multiplied by the norm's gain and rounded to bf16
// (kernels_src/projection/project_add.h), as product/tiles/tile_stream.cuh wants them. They come to shared memory as
// they are; the sums of squares that come beside them, in parts, make the rows' scales:
// norm(x) . w = (x * gain) . w / rms(x).
//
// Constants: those of product/tiles/tile_stream.cuh.
#pragma once

#include "kernels_src/product/tiles/tile_stream.cuh"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// The rows of from.gained, scaled by from.squares and from.eps.
template <class From>  // ResidualIn
struct GainedRows {
  static constexpr int kStageBytes = 0;  // in the ring
  static constexpr int kGainWords = 0;
  static constexpr int kRowBytes = static_cast<int>(kStride) * 2 + Weights::kXPadding;
  static constexpr int kRowsBytes = kTokens * kRowBytes;
  static constexpr int kAllAtOnce =
      (kPartsOfSms * kTokens + static_cast<int>(kThreads) - 1) / static_cast<int>(kThreads);
  static constexpr int kPartsAtOnce = kAllAtOnce < 12 ? kAllAtOnce : 12;  // of a thread, on their way
  using Copies = StageCopies<static_cast<int>(kThreads), 1, 1,
                             static_cast<int>((kTokens * kStride / 8 + kThreads - 1) / kThreads)>;
  static constexpr int kBytes = Copies::kBytes + kRowsBytes + kWarps * kTokens * 4;
  static_assert(kGained == 0 || kHeld != 0 || (32 % kTokens == 0 && kCols == kStride));

  const From& from;
  Copies copies;
  unsigned char* words;
  float* squares;  // [kWarps][kTokens]

  NODEWRIGHT_DEVICE GainedRows(const From& residual, unsigned char* shared)
      : from(residual),
        copies(shared),
        words(shared + Copies::kBytes),
        squares(reinterpret_cast<float*>(shared + Copies::kBytes + kRowsBytes)) {}

  // After the wait.
  NODEWRIGHT_DEVICE void request() {
    const int rows = static_cast<int>(from.gained.count / kStride);
    copies.template request<CopyForm::rows>(
        0, {words, from.gained.data, rows < kTokens ? rows : kTokens, kStride * 2, kRowBytes, kStride * 2});
    copies.close();
  }
  // The rows are there then, for all threads; the squares after the next barrier.
  NODEWRIGHT_DEVICE void wait() {
    const int count = static_cast<int>(from.squares.count);
    float sum = 0.0f;  // of row threadIdx.x % kTokens
    for (int first = static_cast<int>(threadIdx.x); first < count; first += kPartsAtOnce * static_cast<int>(kThreads)) {
      float parts[kPartsAtOnce];
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int j = 0; j < kPartsAtOnce; ++j) {
        const int i = first + j * static_cast<int>(kThreads);
        parts[j] = i < count ? from.squares.data[i] : 0.0f;
      }
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int j = 0; j < kPartsAtOnce; ++j) sum += parts[j];
    }
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int offset = kTokens; offset < 32; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane_of_warp() < kTokens) squares[warp_of_block() * kTokens + lane_of_warp()] = sum;
    copies.wait(0);
  }
  NODEWRIGHT_DEVICE float scale(int m) const {
    float sum = 0.0f;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int w = 0; w < kWarps; ++w) sum += squares[w * kTokens + m];
    return 1.0f / sqrtf(sum / static_cast<float>(kCols) + from.eps);
  }

  NODEWRIGHT_DEVICE uint4 fragment(const unsigned char*, int, int span, int s, int n) const {
    const int column = span_column(span) + Weights::step_column(s) + lane_column();
    if (!kExact && column >= kStride) return uint4{0u, 0u, 0u, 0u};
    return load_16(words + (n * 8 + lane_of_warp() / 4) * kRowBytes + column * 2);
  }
};

}  // namespace nodewright
