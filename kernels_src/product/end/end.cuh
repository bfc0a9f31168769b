// Ends: the last step of a product, from each finished sum to memory. One type serves both engines, rows and tiles,
// which know an end by these static members alone:
//
//   kUnit                       outputs of W that make one result: 2 of a gate and its up
//   kEarly, Held, request()     the old value of a result's place, read while weights are on their way
//   kAdapts, own()              changes the sum of an output, its bias included, before results are made of it
//   put()                       stores a result; `sum(part)` gives the sums that make it
//   kGathers, Kept, join(), finish()
//                               a value gathered of a row over all its results, joined over the threads of the row
//
// `at` is an engine's ResultPlace; its of_output() is in(), added in the order that suits the engine.
#pragma once

#include "kernels_src/device/dialect.cuh"

namespace nodewright {

struct None {};

// Result base + r of row `row` of x. The two stay apart: their sum in a register costs instructions.
template <class Index>
struct ResultPlace {
  Index row;
  int base, r;
  NODEWRIGHT_DEVICE int output() const { return base + r; }
  // Its element of `data` [rows, stride].
  template <class T>
  NODEWRIGHT_DEVICE T* in(T* data, int64_t stride) const {
    return data + row * stride + base + r;
  }
};

// The defaults: nothing is read early, and nothing is gathered.
struct End {
  using Held = None;
  using Kept = None;
  static constexpr int kUnit = 1;
  static constexpr bool kEarly = false, kAdapts = false, kGathers = false;

  template <class Args, class At>
  NODEWRIGHT_DEVICE static Held request(const Args&, const At&) {
    return {};
  }
  template <class Args>
  NODEWRIGHT_DEVICE static float own(const Args&, int64_t, int, int, float sum) {
    return sum;
  }
};

}  // namespace nodewright
