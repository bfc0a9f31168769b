// An end is the epilogue of a matrix product W x + b: it turns each finished sum into the kernel's output. The same end
// works in both engines, products by rows (product/rows.cuh) and in tiles (product/tiles.cuh). An engine uses these
// static members of an end and no others:
//
//   kUnit                       outputs of W that make one result: 2 where a gate and its up make one, otherwise 1
//   kEarly, Held, request()     request() loads the old value of a result while weights are still being loaded; called
//                               where kEarly
//   kAdjusts, adjusted()        adjusted() changes the sum of one output, its bias included, before put() gets it; the
//                               engine for tiles calls it only where kAdjusts
//   put(to, at, sum, has, held, kept)
//                               stores one result; it calls sum(part) for each of the kUnit sums that make the result.
//                               has: whether held is what request() gave; kept: what join() adds up
//   kGathers, Kept, join(), finish()
//                               put() accumulates a value over the results of a row in Kept, join() adds that of
//                               another thread of the row, and finish() stores the total; called where kGathers
//
// `to` is the argument block of the results, `args.to`. adjusted() does not get it, but the further arguments that the
// kernel passes to product(). `at` is the engine's ResultPlace. Its of_output() returns the address that in() returns,
// added up in the order that takes fewer instructions in that engine.
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
  static constexpr bool kEarly = false, kAdjusts = false, kGathers = false;

  template <class To, class At>
  NODEWRIGHT_DEVICE static Held request(const To&, const At&) {
    return {};
  }
  NODEWRIGHT_DEVICE static float adjusted(int64_t, int, int, float sum) { return sum; }
};

}  // namespace nodewright
