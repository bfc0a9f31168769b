// How the elements of a weight matrix W lie in memory. For the host and the kernels.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// As the constant kFormat numbers them. fp8: e4m3, a byte each, with fp32 scales behind the rows.
enum class WeightCode : uint8_t { bf16 = 0, fp8 = 1 };

// W [rows, stride], row-major. The scales of FP8 weights follow the last row: one a row, or of blocks of
// kScaleBlock rows and as many columns, [groups of rows, blocks of columns] with padding to 16 bytes. A group is
// kScaleBlock rows whose numbers differ by multiples of `unit`: where gate and up rows alternate, group 2 i is of
// gates, 2 i + 1 of the same ups.
struct WeightLayout {
  static constexpr int64_t kScaleBlock = 128;

  WeightCode code = WeightCode::bf16;
  bool in_blocks = false;  // scales are of blocks
  int64_t unit = 1;        // of groups of rows

  constexpr bool is_fp8() const { return code == WeightCode::fp8; }
  constexpr int64_t element_bytes() const { return is_fp8() ? 1 : 2; }
  // Columns are padded to a multiple of these.
  constexpr int64_t word_columns() const { return 16 / element_bytes(); }

  constexpr int64_t groups(int64_t rows) const { return (rows + unit * kScaleBlock - 1) / (unit * kScaleBlock) * unit; }
  constexpr int64_t group_of(int64_t row) const { return row / (unit * kScaleBlock) * unit + row % unit; }
  static constexpr int64_t scale_stride(int64_t stride) {
    return (stride + 4 * kScaleBlock - 1) / (4 * kScaleBlock) * 4;
  }
  constexpr int64_t scales(int64_t rows, int64_t stride) const {
    return !is_fp8() ? 0 : in_blocks ? groups(rows) * scale_stride(stride) : rows;
  }
  // The size of `rows` rows and their scales, a multiple of 16.
  constexpr int64_t bytes(int64_t rows, int64_t stride) const {
    return (rows * stride * element_bytes() + scales(rows, stride) * 4 + 15) / 16 * 16;
  }

  // Those of a kernel whose weights are not in bf16 (product/format/weights.cuh).
  constexpr ShapeConstants<3> constants() const {
    return {{{"kFormat", static_cast<int64_t>(code)},
             {"kScaleColumns", in_blocks ? kScaleBlock : 0},
             {"kScaleUnit", unit}}};
  }
  constexpr bool operator==(const WeightLayout&) const = default;
};

}  // namespace nodewright
