// A projection of normed rows: what norm_project and norm_gate_up share. Every block norms its rows of x for itself,
// while its first weights are on their way.
//
// With kPostNorm what the block before has projected is normed and added to x first: every block does so for itself,
// and the first of a row tile leaves the sum for the kernels after this one.
//
// Constants: those of product/rows/matvec.cuh, kNorm (kernels_src/residual/norm.h) and kPostNorm.
#pragma once

#include "kernels_src/product/rows/matvec.cuh"
#include "kernels_src/residual/norm.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

constexpr bool kLayerNorm = kNorm == static_cast<int64_t>(Norm::layer);
constexpr bool kBare = kNorm == static_cast<int64_t>(Norm::none);
static_assert(kPostNorm == 0 || !kLayerNorm, "no family norms so after a block");

// This thread's columns of the norm's vectors, requested before the wait.
struct NormSlice {
  uint4 gain[kChunks], shift[kLayerNorm ? kChunks : 1], post_gain[kPostNorm != 0 ? kChunks : 1];
};

NODEWRIGHT_DEVICE void load_norm(NormSlice& norm, const ResidualIn& from) {
  const auto load = [](const bf16* p) { return load_frozen_16(p); };
  NODEWRIGHT_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    if constexpr (!kBare) norm.gain[c] = load_ragged_8(from.gain.data, chunk_column(c), load);
    if constexpr (kLayerNorm) norm.shift[c] = load_ragged_8(from.shift.data, chunk_column(c), load);
    if constexpr (kPostNorm != 0) norm.post_gain[c] = load_ragged_8(from.post_gain.data, chunk_column(c), load);
  }
}

// Sums over the block; every thread gets them. `scratch`: kTile * kWarps floats of shared memory that nobody reads any
// more.
NODEWRIGHT_DEVICE void row_sums(float (&v)[kTile], float* scratch) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  warp_sums(v);
  if (lane == 0) {
    NODEWRIGHT_UNROLL
    for (int m = 0; m < kTile; ++m) scratch[m * kWarps + warp] = v[m];
  }
  __syncthreads();
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    v[m] = 0.0f;
    NODEWRIGHT_UNROLL
    for (int w = 0; w < kWarps; ++w) v[m] += scratch[m * kWarps + w];
  }
}

// Eight elements of an fp32 row; past kStride, zero.
NODEWRIGHT_DEVICE void load_fp32_8(float (&v)[8], const float* row, int column) {
  uint4 low{0u, 0u, 0u, 0u}, high{0u, 0u, 0u, 0u};
  if (column < kStride) {
    low = load_16(row + column);
    high = load_16(row + column + 4);
  }
  v[0] = bits_to_float(low.x), v[1] = bits_to_float(low.y), v[2] = bits_to_float(low.z), v[3] = bits_to_float(low.w);
  v[4] = bits_to_float(high.x), v[5] = bits_to_float(high.y);
  v[6] = bits_to_float(high.z), v[7] = bits_to_float(high.w);
}

// This thread's columns of fp32 rows padded with zeros to kStride.
NODEWRIGHT_DEVICE void load_fp32_slice(InputSlice& slice, const float* x) {
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) load_fp32_8(slice.x[m][c], x + m * kStride, chunk_column(c));
  }
}

// slice += norm(projected) * post_gain, all in fp32. `scratch` as of row_sums, and not that of norm_slice.
NODEWRIGHT_DEVICE void add_projected(InputSlice& slice, const NormSlice& norm, const ResidualIn& from,
                                     int64_t first_row, int64_t live, float* scratch) {
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  constexpr bool kHeld = 8 * kTile * kChunks <= kSums;  // in registers that sums take later; else read twice
  float held[kHeld ? kTile : 1][kHeld ? kChunks : 1][8], squares[kTile];
  const auto projected = [&](int m, int c) -> float(&)[8] { return held[kHeld ? m : 0][kHeld ? c : 0]; };
  const auto load = [&](int m, int c) {
    float(&p)[8] = projected(m, c);
    load_fp32_8(p, from.projected.data + (first_row + m) * kStride, chunk_column(c));
    if constexpr (kCols % 8 != 0) {  // columns from kCols on are undefined
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i)
        if (chunk_column(c) + i >= kCols) p[i] = 0.0f;
    }
  };
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    squares[m] = 0.0f;
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      load(m, c);
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i) squares[m] = fmaf(projected(m, c)[i], projected(m, c)[i], squares[m]);
    }
  }
  row_sums(squares, scratch);
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    const float scale = 1.0f / sqrtf(squares[m] / static_cast<float>(kCols) + from.eps);
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      if constexpr (!kHeld) load(m, c);
      float gain[8];
      unpack_8(norm.post_gain[c], gain);
      float(&v)[8] = slice.x[m][c];
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i) v[i] = fmaf(projected(m, c)[i], scale * (kOffset + gain[i]), v[i]);
      if (blockIdx.x != 0 || m >= live || chunk_column(c) >= kStride || from.x_next.count == 0) continue;
      store_fp32_8(from.x_next.data + (first_row + m) * kStride + chunk_column(c), v);
    }
  }
}

// Subtracts each row's mean over kCols; the padding stays zero.
NODEWRIGHT_DEVICE void subtract_means(InputSlice& slice, float* scratch) {
  constexpr bool kFilled = kChunks * kThreads * 8 == kCols;  // every column of every thread counts
  float means[kTile];
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    means[m] = 0.0f;
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i) means[m] += slice.x[m][c][i];
    }
  }
  row_sums(means, scratch);
  __syncthreads();  // everybody has read the scratch
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i)
        if (kFilled || chunk_column(c) + i < kCols) slice.x[m][c][i] -= means[m] / static_cast<float>(kCols);
    }
  }
}

// The norm of each row, over kCols, all in fp32.
NODEWRIGHT_DEVICE void norm_slice(InputSlice& slice, const NormSlice& norm, float eps, float* scratch) {
  if constexpr (kBare) return;
  if constexpr (kLayerNorm) subtract_means(slice, scratch);
  float squares[kTile];
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    squares[m] = 0.0f;
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i) squares[m] = fmaf(slice.x[m][c][i], slice.x[m][c][i], squares[m]);
    }
  }
  row_sums(squares, scratch);
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    const float scale = 1.0f / sqrtf(squares[m] / static_cast<float>(kCols) + eps);
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      float gain[8];
      unpack_8(norm.gain[c], gain);
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i) {
        float& v = slice.x[m][c][i];
        if constexpr (kNorm == static_cast<int64_t>(Norm::rms_one_plus))
          v *= scale, v = fmaf(v, gain[i], v);
        else
          v *= scale * gain[i];
      }
      if constexpr (kLayerNorm) {
        float shift[8];
        unpack_8(norm.shift[c], shift);
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) slice.x[m][c][i] += shift[i];
      }
    }
  }
}

// The whole of a kernel that projects norm(x): requests weights and gains, waits, norms, streams, stores. `args`:
// Product or the like, from ResidualIn; store as in project_rows, outputs dealt in units of `unit`.
template <class Args, class Store>
NODEWRIGHT_DEVICE void project_normed(const Args& args, int unit, Store store) {
  float* partial = reinterpret_cast<float*>(shared_memory());
  float* scratch = partial + kSegment * kTile * kWarps;
  const OutputRange range = block_outputs(args.w.outputs, unit);
  WeightBatch batch;
  NormSlice norm;
  request_first_batch(batch, args.w, range);
  load_norm(norm, args.from);
  release_dependents();
  wait_for_inputs();

  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t live = kSingleRow != 0 ? 1 : args.n_live.data[0] - first_row;
  InputSlice slice;
  load_fp32_slice(slice, args.from.x.data + first_row * kStride);
  if constexpr (kPostNorm != 0) add_projected(slice, norm, args.from, first_row, live, partial);
  norm_slice(slice, norm, args.from.eps, scratch);
  stream_stored(args.w, range, batch, slice, partial,
                [&](int segment, int rows, auto sum) { store(first_row, live, segment, rows, sum); });
}

}  // namespace nodewright
