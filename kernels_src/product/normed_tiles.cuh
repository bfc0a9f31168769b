// The source of a product in tiles whose x is the residual: the kernel normalizes it, or with kGained finishes the norm
// of rows that the kernel before has multiplied with the norm's gain.
#pragma once

#include "kernels_src/product/tiles.cuh"
#include "kernels_src/product/tiles/tile_normed_rows.cuh"

namespace nodewright {

struct Normed {
  template <class Args, class Before, class Store, class RangeEnd>
  NODEWRIGHT_DEVICE static void run(const Args& args, BlockRanges ranges, Before before, Store store,
                                    RangeEnd range_end) {
    tile_project_normed(
        args, ranges, [&](int j, int n, int m, int) { before(j, n, m, [](int) { return true; }); },
        [&](int j, int n, int m, float first, float second, bool is_last) {
          store(j, n, m, first, second, [&](int k) { return k == 0 || !is_last; });
        },
        range_end);
  }
};

}  // namespace nodewright
