// The norm of fp32 rows of x as product/tiles/tile_stream.cuh wants it. Each warp multiplies its columns of the rows by
// the gain, rounds them to bf16 and keeps them in shared memory; the rows' scales, which need every column, multiply
// the sums in the end: norm(x) . w = (x * gain) . w / rms(x). With kPostNorm what the block before has projected is
// normed and added to x first: every block does so for itself, and the first leaves the sum for the kernels after this
// one.
//
// A LayerNorm is complete before its rows are rounded: means are found after a barrier of their own, since what is
// left of x without its mean may be small beside x.
//
// With kGained the kernel before has done all that but the scales (product/tiles/tile_gained_rows.cuh, or
// tile_held_rows.cuh).
//
// Constants: those of product/tiles/tile_stream.cuh, kNorm (kernels_src/residual/norm.h), kPostNorm and kGained, the
// latter not of LayerNorms.
#pragma once

#include "kernels_src/product/tiles/tile_gained_rows.cuh"
#include "kernels_src/product/tiles/tile_held_rows.cuh"
#include "kernels_src/residual/norm.h"

namespace nodewright {

constexpr bool kBare = kNorm == static_cast<int64_t>(Norm::none);
constexpr bool kLayerNorm = kNorm == static_cast<int64_t>(Norm::layer);
static_assert(!kLayerNorm || (kPostNorm == 0 && kGained == 0));

// The normalized rows of from.x, padded with zeros to kStride, by from.gain and from.eps; a LayerNorm also
// takes from.shift, kPostNorm from.projected, post_gain and x_next. A lane reads the words that it wrote.
template <class From>  // ResidualIn
struct NormedRows {
  static constexpr int kStageBytes = 0;  // in the ring
  static constexpr int kSteps = 2 * static_cast<int>(kSpans);
  static constexpr int kNorms = kPostNorm != 0 || kLayerNorm ? 2 : 1;  // gains; sums of a row
  static constexpr int kGainWords = kNorms * ((kSteps + 7) / 8);       // of a lane
  static constexpr int kWarpBytes = kSteps * (kTiles * 512 + kNorms * 64);
  static constexpr int kBytes = kWarps * (kWarpBytes + kNorms * 4 * kTokens);
  // Words of this lane whose loads are on their way, and those of what joins x in as many registers.
  static constexpr int kWordsOfLane = kSteps * kTiles;
  static constexpr int kAtOnce = kPostNorm == 0 ? 8 : kThreads <= 192 && kWordsOfLane <= 6 ? 6 : 4;
  static_assert(kHeld != 0 || kAtOnce % kTiles == 0);
  static constexpr int kBatchesAtOnce = kTokenTiles == 1 ? 64 : 1;  // unrolled: two tiles of tokens leave no registers
  static constexpr bool kAllAtOnce = kWordsOfLane <= kAtOnce;
  static constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;

  const From& from;
  bf16* words;     // [kSteps][kTokenTiles][32] of 8 elements; this lane's
  bf16* gains;     // [gain, post gain or shift][kSteps][32], the warp's
  float* squares;  // [norm, post norm or means][kWarps][kTokens]

  NODEWRIGHT_DEVICE NormedRows(const From& residual, unsigned char* shared)
      : from(residual),
        words(reinterpret_cast<bf16*>(shared + warp_of_block() * kWarpBytes) + lane_of_warp() * 8),
        gains(reinterpret_cast<bf16*>(shared + warp_of_block() * kWarpBytes + kSteps * kTiles * 512)),
        squares(reinterpret_cast<float*>(shared + kWarps * kWarpBytes)) {}

  template <class Copies>
  NODEWRIGHT_DEVICE void request_gains(Copies& copies) {
    if constexpr (!kBare) request_gain(copies, gains, from.gain.data);
    if constexpr (kPostNorm != 0) request_gain(copies, gains + kSteps * 32, from.post_gain.data);
    if constexpr (kLayerNorm) request_gain(copies, gains + kSteps * 32, from.shift.data);
    copies.close_group();
  }
  template <class Copies>
  NODEWRIGHT_DEVICE void request_gain(Copies& copies, bf16* to, const bf16* gain) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < (kSteps + 7) / 8; ++i) {
      const int chunk = i * 32 + lane_of_warp();  // of 8 elements
      if (chunk >= kSteps * 4) break;
      const int column = span_column(chunk / 8) + chunk % 8 * 8;
      if (kCols % 8 == 0 || column >= kCols || column + 8 <= kCols) {
        copies.request(to + chunk * 8, gain + column, column < kCols);
      } else {  // the gain ends here
        for (int k = 0; k < 8; ++k) to[chunk * 8 + k] = column + k < kCols ? gain[column + k] : bf16{0};
      }
    }
  }

  // Eight elements of each of kAtOnce words.
  struct Words {
    uint4 low[kAtOnce], high[kAtOnce];

    NODEWRIGHT_DEVICE void unpack(int i, float (&v)[8]) const {
      const uint32_t bits[8] = {low[i].x, low[i].y, low[i].z, low[i].w, high[i].x, high[i].y, high[i].z, high[i].w};
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int k = 0; k < 8; ++k) v[k] = bits_to_float(bits[k]);
    }
  };

  // Word i: the first column of its step, the first of this lane's elements in it, and that one's place among the
  // warp's columns.
  NODEWRIGHT_DEVICE static int step_column(int i) {
    return span_column(i / kTiles / 2) + Weights::step_column(i / kTiles % 2);
  }
  NODEWRIGHT_DEVICE static int column_of(int i) { return step_column(i) + lane_column(); }
  NODEWRIGHT_DEVICE static int gain_of(int i) { return Weights::step_column(i / kTiles) + lane_column(); }
  NODEWRIGHT_DEVICE static int row_of(int i) { return i % kTiles * 8 + lane_of_warp() / 4; }

  // Words `first` and on of rows kStride apart.
  NODEWRIGHT_DEVICE void load(Words& v, const float* rows_of, int first) const {
    const int g = lane_of_warp() / 4;
    const int rows = static_cast<int>(from.x.count / kStride) - g;  // that there are from this lane's first on
    const float* const of_lane = rows_of + g * kStride + lane_column();
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= kWordsOfLane) break;
      const int n = i % kTiles, column = step_column(first + i);
      v.low[i] = v.high[i] = uint4{0u, 0u, 0u, 0u};
      if (n * 8 < rows && (kExact || column + lane_column() < kStride)) {
        v.low[i] = load_16(of_lane + n * 8 * kStride + column);
        v.high[i] = load_16(of_lane + n * 8 * kStride + column + 4);
      }
    }
  }
  // Columns of from.projected from kCols on are undefined.
  NODEWRIGHT_DEVICE void unpack_projected(const Words& v, int first, int i, float (&p)[8]) const {
    v.unpack(i, p);
    if constexpr (kCols % 8 != 0) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int k = 0; k < 8; ++k)
        if (column_of(first + i) + k >= kCols) p[k] = 0.0f;
    }
  }

  // Adds the sums of a warp's lanes to `to`, [kWarps][kTokens].
  NODEWRIGHT_DEVICE void leave_squares(float (&sums)[kTiles], float* to) const {
    group_sums<4>(sums);
    if (lane_of_warp() % 4 == 0) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < kTiles; ++n) to[warp_of_block() * kTokens + n * 8 + lane_of_warp() / 4] = sums[n];
    }
  }
  // The scale of row m, after a barrier.
  NODEWRIGHT_DEVICE float scale_of(int m, const float* of) const {
    float sum = 0.0f;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int w = 0; w < kWarps; ++w) sum += of[w * kTokens + m];
    return 1.0f / sqrtf(sum / static_cast<float>(kCols) + from.eps);
  }
  NODEWRIGHT_DEVICE float scale(int m) const {
    if constexpr (kLayerNorm || kBare) return 1.0f;
    return scale_of(m, squares);
  }

  // The scales of this lane's rows of from.projected, of which the last words are in `projected` then.
  NODEWRIGHT_DEVICE void post_scales(float (&scales)[kTiles], Words& projected) const {
    float sums[kTiles] = {};
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int first = 0; first < kWordsOfLane; first += kAtOnce) {
      load(projected, from.projected.data, first);
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kWordsOfLane) break;
        float p[8];
        unpack_projected(projected, first, i, p);
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int k = 0; k < 8; ++k) sums[(first + i) % kTiles] = fmaf(p[k], p[k], sums[(first + i) % kTiles]);
      }
    }
    float* const of_projected = squares + kWarps * kTokens;
    leave_squares(sums, of_projected);
    __syncthreads();
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < kTiles; ++n) scales[n] = scale_of(row_of(n), of_projected);
  }
  // x += norm(projected) * post_gain, of word i of those from `first` on.
  NODEWRIGHT_DEVICE void add_projected(float (&x)[8], const Words& projected, int first, int i, float scale,
                                       int live) const {
    const int row = row_of(first + i), column = column_of(first + i);
    float p[8], gain[8];
    unpack_projected(projected, first, i, p);
    unpack_8(load_16(gains + kSteps * 32 + gain_of(first + i)), gain);
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int k = 0; k < 8; ++k) x[k] = fmaf(p[k], scale * (kOffset + gain[k]), x[k]);
    if (blockIdx.x == 0 && row < live && (kExact || column < kStride) && from.x_next.count > 0)
      store_fp32_8(from.x_next.data + row * kStride + column, x);
  }

  // Once the gains are there. `live`: of the rows of x.
  NODEWRIGHT_DEVICE void convert(int live) {
    Words from_x, projected;
    float sums[kTiles] = {}, post_scale[kTiles];
    if constexpr (kPostNorm != 0) {
      if constexpr (kAllAtOnce) load(from_x, from.x.data, 0);
      post_scales(post_scale, projected);
    }
    NODEWRIGHT_UNROLL_BY(kBatchesAtOnce)
    for (int first = 0; first < kWordsOfLane; first += kAtOnce) {
      if constexpr (kPostNorm == 0 || !kAllAtOnce) load(from_x, from.x.data, first);
      if constexpr (kPostNorm != 0 && !kAllAtOnce) load(projected, from.projected.data, first);
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kWordsOfLane) break;
        const int n = i % kTiles;  // and (first + i) % kTiles
        float x[8], gain[8];
        if constexpr (!kBare) unpack_8(load_16(gains + gain_of(first + i)), gain);
        from_x.unpack(i, x);
        if constexpr (kPostNorm != 0) add_projected(x, projected, first, i, post_scale[n], live);
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int k = 0; k < 8 && !kBare; ++k) {
          sums[n] = fmaf(x[k], x[k], sums[n]);
          x[k] = kOffset != 0 ? fmaf(x[k], gain[k], x[k]) : x[k] * gain[k];
        }
        store_16(words + (first + i) * kWordStride,
                 uint4{round_pair(x[0], x[1]), round_pair(x[2], x[3]), round_pair(x[4], x[5]), round_pair(x[6], x[7])});
      }
    }
    if constexpr (!kBare) leave_squares(sums, squares);
  }

  // LayerNorm. Each warp leaves the mean of its columns and their squares about it; those of the row follow from
  // all (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979),
  // so that a mean far above the deviation costs no bits.
  NODEWRIGHT_DEVICE void convert_centred() {
    Words from_x;
    float means[kTiles] = {}, sums[kTiles] = {}, scales[kTiles];
    if constexpr (kAllAtOnce) load(from_x, from.x.data, 0);
    each_word(from_x, [&](int i, const float(&x)[8]) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int k = 0; k < 8; ++k) means[i % kTiles] += x[k];
    });
    group_sums<4>(means);
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < kTiles; ++n) means[n] /= static_cast<float>(max(1, columns_of(warp_of_block())));
    each_word(from_x, [&](int i, const float(&x)[8]) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int k = 0; k < 8; ++k) {
        const float centred = kFilled || column_of(i) + k < kCols ? x[k] - means[i % kTiles] : 0.0f;
        sums[i % kTiles] = fmaf(centred, centred, sums[i % kTiles]);
      }
    });
    leave_squares(sums, squares);
    if (lane_of_warp() % 4 == 0) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int n = 0; n < kTiles; ++n)
        squares[(kWarps + warp_of_block()) * kTokens + n * 8 + lane_of_warp() / 4] = means[n];
    }
    __syncthreads();
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < kTiles; ++n) find_moments(row_of(n), means[n], scales[n]);
    each_word(from_x, [&](int i, const float(&x)[8]) {
      const int at = gain_of(i);
      float gain[8], shift[8], y[8];
      unpack_8(load_16(gains + at), gain);
      unpack_8(load_16(gains + kSteps * 32 + at), shift);
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int k = 0; k < 8; ++k) y[k] = fmaf((x[k] - means[i % kTiles]) * scales[i % kTiles], gain[k], shift[k]);
      store_16(words + i * kWordStride,
               uint4{round_pair(y[0], y[1]), round_pair(y[2], y[3]), round_pair(y[4], y[5]), round_pair(y[6], y[7])});
    });
  }
  static constexpr bool kFilled = kExact && kCols == kStride;
  // That count, of a warp.
  NODEWRIGHT_DEVICE static int columns_of(int warp) {
    if constexpr (kFilled) return static_cast<int>(kSpans) * 64;
    int columns = 0;
    for (int span = 0; span < kSpans; ++span)
      columns += max(0, min(64, static_cast<int>(kCols) - (span * kWarps + warp) * 64));
    return columns;
  }
  // use(i, x) of every word of this lane, all of which are in `v` already where kAllAtOnce.
  template <class Use>
  NODEWRIGHT_DEVICE void each_word(Words& v, Use use) const {
    NODEWRIGHT_UNROLL_BY(kBatchesAtOnce)
    for (int first = 0; first < kWordsOfLane; first += kAtOnce) {
      if constexpr (!kAllAtOnce) load(v, from.x.data, first);
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kWordsOfLane) break;
        float x[8];
        v.unpack(i, x);
        use(first + i, x);
      }
    }
  }
  // The mean of row m and one over its deviation, of what the warps have left, after a barrier.
  NODEWRIGHT_DEVICE void find_moments(int m, float& mean, float& scale) const {
    const float *of_warps = squares + m, *means = squares + kWarps * kTokens + m;
    float sum = 0.0f, all = 0.0f;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int w = 0; w < kWarps; ++w) sum = fmaf(means[w * kTokens], static_cast<float>(columns_of(w)), sum);
    mean = sum / static_cast<float>(kCols);
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int w = 0; w < kWarps; ++w) {
      const float apart = means[w * kTokens] - mean;
      all += fmaf(apart * apart, static_cast<float>(columns_of(w)), of_warps[w * kTokens]);
    }
    scale = 1.0f / sqrtf(all / static_cast<float>(kCols) + from.eps);
  }

  NODEWRIGHT_DEVICE uint4 fragment(const unsigned char*, int, int span, int s, int n) const {
    return load_16(words + ((span * 2 + s) * kTiles + n) * kWordStride);
  }
};

template <bool kFirst, class A, class B>
struct Either {
  using Type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using Type = B;
};

// The whole of a kernel that projects norm(x), outputs dealt in units of `unit`: requests weights, waits, norms,
// streams. before(j, row, m, last) and store(j, row, m, first, second, is_last) as of stream_tiles, the latter for the
// rows m of x that count; is_last: there is no `second`. range_end: as of stream_tiles.
template <class Args, class Before, class Store, class RangeEnd>
NODEWRIGHT_DEVICE void tile_project_normed(const Args& args, BlockRanges ranges, Before before, Store store,
                                           RangeEnd range_end) {
  if constexpr (kHeld != 0) {
    static_assert(kHeld == 0 || kGained != 0);
    RowScales scales;
    int live = 0;
    tile_project_held<RowScales::kBytes>(
        args.w, args.from.gained.data, kStride, static_cast<int>(args.from.gained.count / kStride), args.n_live.data,
        ranges, live, [&] { scales.request(args.from); },
        [&](unsigned char* shared) { scales.sum(args.from, reinterpret_cast<float*>(shared)); }, before,
        [&](int j, int row, int m, float first, float second, int last) {
          if (m < live) store(j, row, m, first * scales.of_pair[j], second * scales.of_pair[j], row + 1 == last);
        },
        range_end);
  } else {
    using Rows = typename Either<kGained != 0, GainedRows<decltype(args.from)>, NormedRows<decltype(args.from)>>::Type;
    using Ring = TileRing<Rows>;
    Ring ring(args.w, ranges, shared_memory());
    Rows rows(args.from, shared_memory() + Ring::kBytes);
    if constexpr (kGained == 0) rows.request_gains(ring.copies.words);
    ring.start();
    release_dependents();
    wait_for_inputs();
    if constexpr (kGained != 0) rows.request();
    const int live = args.n_live.data[0];
    if constexpr (kGained != 0) {
      rows.wait();
    } else {
      ring.copies.words.template wait<Ring::Copies::kGroups>();
      __syncwarp();  // a lane reads gains that another has copied
      if constexpr (kLayerNorm)
        rows.convert_centred();
      else
        rows.convert(live);
    }
    float scales[kOwned];  // a thread's j-th outputs are of one row of x, in every tile
    stream_tiles(
        ring, rows, reinterpret_cast<float*>(shared_memory() + Ring::kBytes + Rows::kBytes), before,
        [&](int j, int row, int m, float first, float second, int last) {
          if (m >= live) return;
          if (row < ranges.now.first + kRows) scales[j] = rows.scale(m);
          store(j, row, m, first * scales[j], second * scales[j], row + 1 == last);
        },
        range_end);
  }
}

}  // namespace nodewright
