// A projection of normed rows: what norm_project and norm_gate_up share. Every block norms its rows of x for itself,
// while its first weights are on their way.
//
// Constants: those of device/matvec.cuh, and kNorm (kernels_src/norm.h).
#pragma once

#include "kernels_src/device/matvec.cuh"
#include "kernels_src/norm.h"

namespace nodewright {

constexpr bool kLayerNorm = kNorm == static_cast<int64_t>(Norm::layer);

// This thread's columns of the norm's vectors, requested before the wait.
struct NormSlice {
  uint4 gain[kChunks], shift[kLayerNorm ? kChunks : 1];
};

template <class Args>
NODEWRIGHT_DEVICE void load_norm(NormSlice& norm, const Args& args) {
  const auto load = [](const bf16* p) { return load_frozen_16(p); };
  NODEWRIGHT_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    norm.gain[c] = load_ragged_8(args.gain.data, chunk_column(c), load);
    if constexpr (kLayerNorm) norm.shift[c] = load_ragged_8(args.shift.data, chunk_column(c), load);
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

// This thread's columns of fp32 rows padded with zeros to kStride.
NODEWRIGHT_DEVICE void load_fp32_slice(InputSlice& slice, const float* x) {
  NODEWRIGHT_UNROLL
  for (int m = 0; m < kTile; ++m) {
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      const int column = chunk_column(c);
      float(&v)[8] = slice.x[m][c];
      uint4 low{0u, 0u, 0u, 0u}, high{0u, 0u, 0u, 0u};
      if (column < kStride) {
        low = load_16(x + m * kStride + column);
        high = load_16(x + m * kStride + column + 4);
      }
      v[0] = bits_to_float(low.x), v[1] = bits_to_float(low.y), v[2] = bits_to_float(low.z),
      v[3] = bits_to_float(low.w);
      v[4] = bits_to_float(high.x), v[5] = bits_to_float(high.y);
      v[6] = bits_to_float(high.z), v[7] = bits_to_float(high.w);
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

// The whole of a kernel that projects norm(x): requests weights and gains, waits, norms, streams, stores. `args` has x,
// gain, shift, weight, n_live, outputs and eps; store as in project_rows, outputs dealt in units of `unit`.
template <class Args, class Store>
NODEWRIGHT_DEVICE void project_normed(const Args& args, int unit, Store store) {
  float* partial = reinterpret_cast<float*>(shared_memory());
  float* scratch = partial + kSegment * kTile * kWarps;
  const OutputRange range = block_outputs(args.outputs, unit);
  WeightBatch batch;
  NormSlice norm;
  request_first_batch(batch, args.weight.data, range);
  load_norm(norm, args);
  release_dependents();
  wait_for_inputs();

  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t live = kSingleRow != 0 ? 1 : args.n_live.data[0] - first_row;
  InputSlice slice;
  load_fp32_slice(slice, args.x.data + first_row * kStride);
  norm_slice(slice, norm, args.eps, scratch);
  stream_weights(args.weight.data, range, batch, slice, partial,
                 [&](int segment, int rows, auto sum) { store(first_row, live, segment, rows, sum); });
}

}  // namespace nodewright
