// The norm of fp32 rows of x as device/tile_stream.cuh wants it. Each warp multiplies its columns of the rows by the
// gain, rounds them to bf16 and keeps them in shared memory; the rows' scales, which need every column, multiply the
// sums in the end: norm(x) . w = (x * gain) . w / rms(x).
//
// Constants: those of device/tile_stream.cuh, and kNorm, an RMS norm (kernels_src/norm.h).
#pragma once

#include "kernels_src/device/tile_stream.cuh"
#include "kernels_src/norm.h"

namespace nodewright {

static_assert(kNorm == static_cast<int64_t>(Norm::rms) || kNorm == static_cast<int64_t>(Norm::rms_one_plus));

// Of args.x, padded with zeros to kStride, by args.gain and args.eps. A lane reads the words that it has written.
template <class Args>
struct NormedRows {
  static constexpr int kWords = 0;  // in the ring
  static constexpr int kSteps = 2 * static_cast<int>(kSpans);
  static constexpr int kWarpBytes = kSteps * (kTiles * 512 + 64);
  static constexpr int kBytes = kWarps * (kWarpBytes + 4 * kTokens);

  const Args& args;
  bf16* words;     // [kSteps][kTokenTiles][32] of 8 elements; this lane's
  bf16* gains;     // [kSteps][32], the warp's
  float* squares;  // [kWarps][kTokens]

  NODEWRIGHT_DEVICE NormedRows(const Args& a, unsigned char* shared)
      : args(a),
        words(reinterpret_cast<bf16*>(shared + warp_of_block() * kWarpBytes) + lane_of_warp() * 8),
        gains(reinterpret_cast<bf16*>(shared + warp_of_block() * kWarpBytes + kSteps * kTiles * 512)),
        squares(reinterpret_cast<float*>(shared + kWarps * kWarpBytes)) {}

  template <class Copies>
  NODEWRIGHT_DEVICE void request_gains(Copies& copies) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < (kSteps + 7) / 8; ++i) {
      const int chunk = i * 32 + lane_of_warp();  // of 8 elements
      if (chunk >= kSteps * 4) break;
      const int column = span_column(chunk / 8) + chunk % 8 * 8;
      if (kCols % 8 == 0 || column >= kCols || column + 8 <= kCols) {
        copies.request(gains + chunk * 8, args.gain.data + column, column < kCols);
      } else {  // the gain ends here
        for (int k = 0; k < 8; ++k) gains[chunk * 8 + k] = column + k < kCols ? args.gain.data[column + k] : bf16{0};
      }
    }
    copies.close_group();
  }

  // Once the gains are there.
  NODEWRIGHT_DEVICE void convert() {
    constexpr int kAtOnce = 8;  // words whose loads are on their way
    const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
    const int rows = static_cast<int>(args.x.count / kStride) - g;  // that there are from this lane's first on
    const float* const from = args.x.data + g * kStride + t * 8;
    float sums[kTiles] = {};
    NODEWRIGHT_UNROLL
    for (int first = 0; first < kSteps * kTiles; first += kAtOnce) {
      uint4 low[kAtOnce], high[kAtOnce];
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kSteps * kTiles) break;
        const int step = (first + i) / kTiles, n = (first + i) % kTiles;
        const int column = span_column(step / 2) + step % 2 * 32;
        low[i] = high[i] = uint4{0u, 0u, 0u, 0u};
        if (n * 8 < rows && (kExact || column + t * 8 < kStride)) {
          low[i] = load_16(from + n * 8 * kStride + column);
          high[i] = load_16(from + n * 8 * kStride + column + 4);
        }
      }
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kSteps * kTiles) break;
        const int step = (first + i) / kTiles, n = (first + i) % kTiles;
        float gain[8];
        unpack_8(load_16(gains + step * 32 + t * 8), gain);
        const uint32_t bits[8] = {low[i].x, low[i].y, low[i].z, low[i].w, high[i].x, high[i].y, high[i].z, high[i].w};
        float x[8];
        NODEWRIGHT_UNROLL
        for (int k = 0; k < 8; ++k) {
          x[k] = bits_to_float(bits[k]);
          sums[n] = fmaf(x[k], x[k], sums[n]);
          x[k] = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? fmaf(x[k], gain[k], x[k]) : x[k] * gain[k];
        }
        store_16(words + (first + i) * kWordStride,
                 uint4{round_pair(x[0], x[1]), round_pair(x[2], x[3]), round_pair(x[4], x[5]), round_pair(x[6], x[7])});
      }
    }
    group_sums<4>(sums);
    if (t == 0) {
      NODEWRIGHT_UNROLL
      for (int n = 0; n < kTiles; ++n) squares[warp_of_block() * kTokens + n * 8 + g] = sums[n];
    }
  }

  // Of row m, after a barrier.
  NODEWRIGHT_DEVICE float scale(int m) const {
    float sum = 0.0f;
    NODEWRIGHT_UNROLL
    for (int w = 0; w < kWarps; ++w) sum += squares[w * kTokens + m];
    return 1.0f / sqrtf(sum / static_cast<float>(kCols) + args.eps);
  }

  NODEWRIGHT_DEVICE uint4 fragment(const bf16*, int span, int s, int n) const {
    return load_16(words + ((span * 2 + s) * kTiles + n) * kWordStride);
  }
};

// The whole of a kernel that projects norm(x), outputs dealt in units of `unit`: requests weights, waits, norms,
// streams. store(j, row, m, first, second, is_last) as of stream_tiles, for the rows m of x that count; is_last: there
// is no `second`.
template <class Args, class Store>
NODEWRIGHT_DEVICE void tile_project_normed(const Args& args, int unit, Store store) {
  using Rows = NormedRows<Args>;
  using Ring = SpanRing<Rows>;
  const OutputRange range = block_outputs(args.outputs, unit);
  Ring ring(args.weight.data, range, shared_memory());
  Rows rows(args, shared_memory() + Ring::kBytes);
  rows.request_gains(ring.copies);
  ring.start();
  release_dependents();
  wait_for_inputs();
  const int live = args.n_live.data[0];
  ring.copies.template wait<kHeld>();
  __syncwarp();  // a lane reads gains that another has copied
  rows.convert();
  stream_tiles(
      range, ring, rows, reinterpret_cast<float*>(shared_memory() + Ring::kBytes + Rows::kBytes), [](int, int, int) {},
      [&](int j, int row, int m, float first, float second) {
        if (m >= live) return;
        const float scale = rows.scale(m);
        store(j, row, m, first * scale, second * scale, row + 1 == range.last);
      });
}

}  // namespace nodewright
