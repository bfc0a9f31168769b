// The engine for products of few rows, by dot products. A source of x (Plain or Normed) keeps rows of x in registers
// and streams W past them, and an end (product/end/end.cuh) turns the sums into results. Block (b, t) computes a range
// of results of rows t * kTile to t * kTile + kTile - 1.
#pragma once

#include "kernels_src/product/end/end.cuh"
#include "kernels_src/product/rows/matvec.cuh"

namespace nodewright {

struct RowPlace : ResultPlace<int64_t> {
  template <class T>
  NODEWRIGHT_DEVICE T* of_output(T* data, int64_t stride) const {
    return data + row * stride + output();
  }
};

// The source of a product whose x is bf16 in memory, used unchanged.
struct Plain {
  template <class Args, class Before, class Store>
  NODEWRIGHT_DEVICE static void run(const Args& args, int /*unit*/, Before before, Store store) {
    project_rows(args, before, store);
  }
};

// `more`: what the end's adjusted() takes beside the sum.
template <class Source, class To, class Args, class... More>
NODEWRIGHT_DEVICE void product(const Args& args, const More&... more) {
  constexpr int kUnit = To::kUnit;
  static_assert(kBatch % kUnit == 0, "a gate row and its up row end in the same segment");
  const int own = static_cast<int>(threadIdx.x);
  const FirstScales<kUnit> scales(args.w);
  // With one row of x, the thread loads the old value of its result of the first segment (mostly the only one) together
  // with x: loaded after the sums it would keep the next kernel waiting. More rows of x leave no registers for it.
  constexpr bool kComesWithX = kTile == 1 && To::kEarly;
  typename To::Held first{};
  bool has_first = kComesWithX;
  typename To::Kept kept{};
  Source::run(
      args, kUnit,
      [&](int64_t first_row, int64_t live, int segment, int rows) {
        if (kComesWithX && own < rows && live > 0) first = To::request(args.to, RowPlace{{first_row, segment, own}});
      },
      [&](int64_t first_row, int64_t live, int segment, int rows, auto sum) {
        const int results = rows / kUnit;
        for (int i = own; i < results * kTile; i += static_cast<int>(kThreads)) {
          const auto [r, m] = sum_place(i, results);
          if (m >= live) continue;
          const auto value = [&, r = r, m = m](int part) {
            const int of_segment = kUnit * r + part, output = segment + of_segment;
            return To::adjusted(first_row + m, output, output % kUnit,
                                scales.ended(args.w, output, part, sum(of_segment, m)), more...);
          };
          To::put(args.to, RowPlace{{first_row + m, segment / kUnit, r}}, value, has_first && i == own, first, kept);
        }
        has_first = false;
      });
}

}  // namespace nodewright
