// Weights in bf16: what product/rows multiplies at once is 16 bytes, and those of product/tiles are operands of tensor
// cores as they lie in memory.
#pragma once

#include "kernels_src/product/format/groups.cuh"

namespace nodewright {

struct Bf16Weights : NoGroups {
  using Element = bf16;
  using Eight = uint4;  // eight elements of a row
  static constexpr int kElementBytes = 2, kColumnsOfElement = 1;
  static constexpr int kXPadding = 64;  // bytes between rows of x in shared memory beside a multiple of 128

  static constexpr int kChunksOfWord = 1;  // of 8 columns in 16 bytes
  NODEWRIGHT_DEVICE static Eight eight(uint4 word, int /*chunk*/) { return word; }

  // Where the columns of a step begin in a warp's spans, of two steps each, and how far apart its lanes' columns are.
  NODEWRIGHT_DEVICE static constexpr int step_column(int step) { return step * 32; }
  static constexpr int kLaneColumns = 8;
  // Lane (g, t)'s words of a span of W's rows g and g + 8, by step; load(column, row): this lane's 16 bytes after a
  // column.
  template <int kRows, class Load>
  struct Span {
    const Load& load;
    NODEWRIGHT_DEVICE explicit Span(const Load& from) : load(from) {}
    NODEWRIGHT_DEVICE uint4 operator()(int s, int row) const { return load(step_column(s), row); }
  };
};

}  // namespace nodewright
