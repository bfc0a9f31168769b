// The end that adds to the residual: residual[m, n] += sum * kTimes. With kLeavesGain it also prepares the next norm:
// next.gained[m, n] = residual[m, n] * next.gain[n], and next.squares[p, m] = the sum of residual[m, n] squared over
// the outputs n of part p, those of a block or of a cluster (BlockRanges).
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/product/end/end.cuh"
#include "kernels_src/residual/residual.h"

namespace nodewright {

template <int64_t kTimes, bool kLeavesGain = false>
struct Add : End {
  static constexpr bool kEarly = true, kGathers = kLeavesGain;
  struct Held {
    float residual, gain;
  };
  using Kept = float;  // of squares

  template <class At>
  NODEWRIGHT_DEVICE static Held request(const AddTo& to, const At& at) {
    Held held{*at.of_output(to.residual.data, to.stride), 0.0f};
    if constexpr (kLeavesGain) held.gain = to_float(to.next.gain.data[at.output()]);
    return held;
  }
  // `has`: whether `held` is what request() gave; else it is read now.
  template <class At, class Sum>
  NODEWRIGHT_DEVICE static void put(const AddTo& to, const At& at, Sum sum, bool has, const Held& held, Kept& squares) {
    float* const place = at.of_output(to.residual.data, to.stride);
    const float value = (has ? held.residual : *place) + scaled_by<kTimes>(sum(0));
    *place = value;
    if constexpr (kLeavesGain) {
      *at.in(to.next.gained.data, at.outputs) = to_bf16(value * held.gain);
      squares = fmaf(value, value, squares);
    }
  }
  // Adds the sum that the lane `offset` away has.
  NODEWRIGHT_DEVICE static void join(Kept& squares, int offset) {
    squares += __shfl_xor_sync(0xffffffffu, squares, offset);
  }
  NODEWRIGHT_DEVICE static void finish(const AddTo& to, int part, int row, int rows, Kept squares) {
    to.next.squares.data[part * rows + row] = squares;
  }
};

}  // namespace nodewright
