// The engine for products on tensor cores. A source of x (Plain or Normed) multiplies tiles of W with all rows of x,
// and an end (product/end/end.cuh) turns the sums into results. Block b computes a range of results of all rows.
#pragma once

#include "kernels_src/product/end/end.cuh"
#include "kernels_src/product/tiles/tile_rows.cuh"

namespace nodewright {

struct TilePlace : ResultPlace<int> {
  int64_t outputs;  // of a row

  template <class T>
  NODEWRIGHT_DEVICE T* of_output(T* data, int64_t stride) const {
    return in(data, stride);
  }
};

// The source of a product whose x is bf16 in memory, used unchanged. counts(k): whether output n + k of row m, of the
// block's group, is one of the block's, and its row counts.
struct Plain {
  template <class Args, class Before, class Store, class RangeEnd>
  NODEWRIGHT_DEVICE static void run(const Args& args, BlockRanges ranges, Before before, Store store,
                                    RangeEnd range_end) {
    int live = 0;
    const auto end = [&](int last) { return kGrouped ? last : ranges.now.last; };
    tile_project_rows(
        args, ranges, live,
        [&](int j, int n, int m, int last) { before(j, n, m, [&](int k) { return m < live && n + k < end(last); }); },
        [&](int j, int n, int m, float first, float second, int last) {
          if (m >= live) return;
          store(j, n, m, first, second, [&](int k) { return n + k < end(last); });
        },
        range_end);
  }
};

// `more`: what the end's adjusted() takes beside the sum.
template <class Source, class To, class Args, class... More>
NODEWRIGHT_DEVICE void product(const Args& args, const More&... more) {
  constexpr int kResults = 2 / To::kUnit;  // of a pair of outputs
  PairTerms terms;
  typename To::Held held[To::kEarly ? kOwned : 1][kResults];
  typename To::Kept kept[To::kGathers ? kOwned : 1] = {};
  const int first_row = first_row_of_group();
  const auto range_end = [&](int part) {
    if constexpr (To::kGathers) {
      for_each_owned_pair([&](int j, int i) {
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int offset = kHalfTile / 2; offset > 0; offset /= 2) To::join(kept[j], offset);
        if (i % kHalfTile == 0 && is_of_block(i))
          To::finish(args.to, part, first_row + i / kHalfTile, padded_rows(), kept[j]);
        if constexpr (kGrouped) kept[j] = {};
      });
    }
  };
  Source::run(
      args, BlockRanges(args.w.outputs, To::kUnit),
      [&](int j, int n, int m, auto counts) {
        terms.request(args.w, j, n);
        if constexpr (To::kEarly) {
          NODEWRIGHT_UNROLL_ON_DEVICE
          for (int k = 0; k < kResults; ++k)
            if (counts(k)) held[j][k] = To::request(args.to, TilePlace{{first_row + m, n, k}, args.w.outputs});
        }
      },
      [&](int j, int n, int m, float first, float second, auto counts) {
        terms.end(j, first, second);
        if constexpr (To::kAdjusts) {
          first = To::adjusted(first_row + m, n, 0, first, more...);
          if (counts(1)) second = To::adjusted(first_row + m, n + 1, To::kUnit - 1, second, more...);
        }
        NODEWRIGHT_UNROLL_ON_DEVICE
        for (int k = 0; k < kResults; ++k) {
          if (!counts(k)) break;
          To::put(
              args.to, TilePlace{{first_row + m, n / To::kUnit, k}, args.w.outputs},
              [&](int part) { return k + part == 0 ? first : second; }, true, held[To::kEarly ? j : 0][k],
              kept[To::kGathers ? j : 0]);
        }
      },
      range_end);
  end_only_range(range_end);
}

}  // namespace nodewright
