// The end that adds to the residual: residual[m, n] += sum * kTimes. With kLeavesGain it also prepares the next norm:
// next.gained[m, n] = residual[m, n] * next.gain[n], and next.squares[b, m] = the sum of residual[m, n] squared over
// the outputs n of block b.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/product/end/end.cuh"

namespace nodewright {

template <int64_t kTimes, bool kLeavesGain = false>
struct Add : End {
  static constexpr bool kEarly = true, kGathers = kLeavesGain;
  struct Held {
    float residual, gain;
  };
  using Kept = float;  // of squares

  template <class Args, class At>
  NODEWRIGHT_DEVICE static Held request(const Args& args, const At& at) {
    Held held{*at.of_output(args.residual.data, args.residual_stride), 0.0f};
    if constexpr (kLeavesGain) held.gain = to_float(args.next.gain.data[at.output()]);
    return held;
  }
  // `has`: whether `held` is what request() gave; else it is read now.
  template <class Args, class At, class Sum>
  NODEWRIGHT_DEVICE static void put(const Args& args, const At& at, Sum sum, bool has, const Held& held,
                                    Kept& squares) {
    float* const to = at.of_output(args.residual.data, args.residual_stride);
    const float value = (has ? held.residual : *to) + scaled_by<kTimes>(sum(0));
    *to = value;
    if constexpr (kLeavesGain) {
      *at.in(args.next.gained.data, args.outputs) = to_bf16(value * held.gain);
      squares = fmaf(value, value, squares);
    }
  }
  // Adds the sum that the lane `offset` away has.
  NODEWRIGHT_DEVICE static void join(Kept& squares, int offset) {
    squares += __shfl_xor_sync(0xffffffffu, squares, offset);
  }
  template <class Args>
  NODEWRIGHT_DEVICE static void finish(const Args& args, int row, int rows, Kept squares) {
    args.next.squares.data[static_cast<int>(blockIdx.x) * rows + row] = squares;
  }
};

}  // namespace nodewright
