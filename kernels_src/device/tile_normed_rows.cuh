// The norm of fp32 rows of x as device/tile_stream.cuh wants it. Each warp multiplies its columns of the rows by the
// gain, rounds them to bf16 and keeps them, in shared memory or, in a cluster, in registers; the rows' scales, which
// need every column, multiply the sums in the end: norm(x) . w = (x * gain) . w / rms(x).
//
// Constants: those of device/tile_stream.cuh, and kNorm, an RMS norm (kernels_src/norm.h).
#pragma once

#include "kernels_src/device/tile_cluster.cuh"
#include "kernels_src/norm.h"

namespace nodewright {

static_assert(kNorm == static_cast<int64_t>(Norm::rms) || kNorm == static_cast<int64_t>(Norm::rms_one_plus));

// Eight elements of x, as they lie in `low` and `high`, times their gains; adds their squares to `sum`.
NODEWRIGHT_DEVICE uint4 gained(uint4 low, uint4 high, uint4 gains, float& sum) {
  const uint32_t bits[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  float gain[8], x[8];
  unpack_8(gains, gain);
  NODEWRIGHT_UNROLL
  for (int k = 0; k < 8; ++k) {
    x[k] = bits_to_float(bits[k]);
    sum = fmaf(x[k], x[k], sum);
    x[k] = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? fmaf(x[k], gain[k], x[k]) : x[k] * gain[k];
  }
  return uint4{round_pair(x[0], x[1]), round_pair(x[2], x[3]), round_pair(x[4], x[5]), round_pair(x[6], x[7])};
}

// 1 / rms of a row whose squares sum up to `squares`.
NODEWRIGHT_DEVICE float norm_scale(float squares, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(kCols) + eps);
}

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
        store_16(words + (first + i) * kWordStride,
                 gained(low[i], high[i], load_16(gains + step * 32 + t * 8), sums[n]));
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
    return norm_scale(sum, args.eps);
  }

  NODEWRIGHT_DEVICE uint4 fragment(const bf16*, int span, int s, int n) const {
    return load_16(words + ((span * 2 + s) * kTiles + n) * kWordStride);
  }
};

// The lane's columns of the gain of a norm.
struct HeldGains {
  uint4 words[kSpans][2];

  NODEWRIGHT_DEVICE explicit HeldGains(const bf16* gain) {
    NODEWRIGHT_UNROLL
    for (int span = 0; span < kSpans; ++span) {
      NODEWRIGHT_UNROLL
      for (int s = 0; s < 2; ++s) {
        const int column = span_column(span) + s * 32 + lane_column(), left = static_cast<int>(kCols) - column;
        uint32_t pairs[4] = {};
        if (left >= 8) {
          words[span][s] = load_frozen_16(gain + column);
          continue;
        }
        if constexpr (kCols % 8 != 0)
          for (int i = 0; i < left; ++i) pairs[i / 2] |= static_cast<uint32_t>(gain[column + i].bits) << (i % 2 * 16);
        words[span][s] = uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
      }
    }
  }
};

// Rows of args.x, as NormedRows takes them; squares: [kWarps][kTokens], a warp's sums.
template <class Args>
NODEWRIGHT_DEVICE void hold_normed_rows(HeldRows& x, const Args& args, const HeldGains& gains, float* squares) {
  constexpr int kAtOnce = 8, kAll = static_cast<int>(kSpans) * 2 * kTiles;
  const int g = lane_of_warp() / 4;
  const int rows = static_cast<int>(args.x.count / kStride) - g;
  const float* const from = args.x.data + g * kStride + lane_column();
  float sums[kTiles] = {};
  NODEWRIGHT_UNROLL
  for (int first = 0; first < kAll; first += kAtOnce) {
    uint4 low[kAtOnce], high[kAtOnce];
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= kAll) break;
      const int step = (first + i) / kTiles, n = (first + i) % kTiles, column = span_column(step / 2) + step % 2 * 32;
      low[i] = high[i] = uint4{0u, 0u, 0u, 0u};
      if (n * 8 < rows && (kExact || column + lane_column() < kStride)) {
        low[i] = load_16(from + n * 8 * kStride + column);
        high[i] = load_16(from + n * 8 * kStride + column + 4);
      }
    }
    NODEWRIGHT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= kAll) break;
      const int step = (first + i) / kTiles, n = (first + i) % kTiles;
      x.words[step / 2][step % 2][n] = gained(low[i], high[i], gains.words[step / 2][step % 2], sums[n]);
    }
  }
  group_sums<4>(sums);
  if (lane_of_warp() % 4 == 0) {
    NODEWRIGHT_UNROLL
    for (int n = 0; n < kTiles; ++n) squares[warp_of_block() * kTokens + n * 8 + g] = sums[n];
  }
}

// tile_project_normed of a cluster.
template <class Args, class Store>
NODEWRIGHT_DEVICE void cluster_project_normed(const Args& args, int unit, Store store) {
  using Ring = SpanRing<HeldRows>;
  const OutputRange range = block_outputs(args.outputs, unit);
  Ring ring(args.weight.data, range, shared_memory());
  const ClusterSums sums(shared_memory() + Ring::kBytes);
  ring.start();
  const HeldGains gains(args.gain.data);
  cluster_arrive();
  release_dependents();
  wait_for_inputs();
  const int live = args.n_live.data[0];
  HeldRows x;
  hold_normed_rows(x, args, gains, sums.squares);
  stream_in_cluster<true>(
      range, ring, x, sums, [](int, int, int) {},
      [&](int j, int row, int m, float first, float second) {
        if (m >= live) return;
        float squares = 0.0f;
        NODEWRIGHT_UNROLL
        for (int block = 0; block < kBlocks; ++block)
          squares += sums.received_squares[block * kFinished + m % kFinished];
        const float scale = norm_scale(squares, args.eps);
        store(j, row, m, first * scale, second * scale, row + 1 == range.last);
      });
}

// tile_project_normed of blocks by themselves.
template <class Args, class Store>
NODEWRIGHT_DEVICE void block_project_normed(const Args& args, int unit, Store store) {
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

// The whole of a kernel that projects norm(x), outputs dealt in units of `unit`: requests weights, waits, norms,
// streams. store(j, row, m, first, second, is_last) as of stream_tiles, for the rows m of x that count; is_last: there is
// no `second`.
template <class Args, class Store>
NODEWRIGHT_DEVICE void tile_project_normed(const Args& args, int unit, Store store) {
  if constexpr (kBlocks > 1)
    cluster_project_normed(args, unit, store);
  else
    block_project_normed(args, unit, store);
}

}  // namespace nodewright
