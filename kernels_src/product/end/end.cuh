// Ends: the last step of a product, from each finished sum to memory. One type serves both engines, rows and tiles,
// which know an end by these static members alone:
//
//   kUnit                     outputs of W that make one result: 2 of a gate and its up
//   kEarly, Held, request()   the old value of a result's place, read while weights are on their way
//   kAdapts, own()            what becomes of the sum of an output, its bias included, before results are made of it
//   put()                     stores a result; `sum(part)` gives the sums that make it
//   kGathers, Kept, join(), finish()
//                             a value gathered of a row over all its results, joined over the threads that share the
//                             row
//
// `at`, an engine's place of a result: at.row of x, at.output(), and at.in(data, stride), its element of [rows,
// stride].
#pragma once

#include "kernels_src/device/dialect.cuh"

namespace nodewright {

struct None {};

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
