// How the elements of a weight matrix W lie in memory. For the host and the kernels.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// As the constant kFormat numbers them. fp8: e4m3, a byte each, with fp32 scales after the rows. int4: q of 4 bits each
// that stands for scale * (q - zero), with both for each group of a row's columns after the rows.
enum class WeightCode : uint8_t { bf16 = 0, fp8 = 1, int4 = 2 };

// W [rows, stride], row-major. The scales of FP8 weights follow the last row: one a row, or of blocks of
// kScaleBlock rows and as many columns, [groups of rows, blocks of columns] with padding to 16 bytes. A group is
// kScaleBlock rows whose numbers differ by multiples of `unit`: where gate and up rows alternate, group 2 i is of
// gates, 2 i + 1 of the same ups.
//
// int4: 128 columns are 64 bytes, the words of four lanes. 32-bit piece j of lane t's 16 bytes holds columns
// 32 j + 8 t to 32 j + 8 t + 7, of which column 2 p is bits 4 p to 4 p + 3, column 2 p + 1 bits 4 p + 16 to 4 p + 19.
// After the last row: [rows, group_stride(stride)] words of 32 bits, one a group, each an fp32 scale whose lowest byte
// is the zero.
struct WeightLayout {
  static constexpr int64_t kScaleBlock = 128;

  WeightCode code = WeightCode::bf16;
  bool in_blocks = false;  // scales are of blocks
  int64_t unit = 1;        // of groups of rows
  int64_t group = 0;       // int4: columns of a row that share a scale: 32, 64 or 128

  constexpr bool is_fp8() const { return code == WeightCode::fp8; }
  constexpr bool is_int4() const { return code == WeightCode::int4; }
  constexpr bool is_quantized() const { return code != WeightCode::bf16; }
  constexpr int64_t element_bits() const { return is_int4() ? 4 : is_fp8() ? 8 : 16; }
  constexpr int64_t row_bytes(int64_t stride) const { return stride * element_bits() / 8; }
  constexpr int64_t word_columns() const { return 128 / element_bits(); }  // of 16 bytes
  // The stride is a multiple of these.
  constexpr int64_t padded_to() const { return is_int4() ? 128 : word_columns(); }

  constexpr int64_t groups(int64_t rows) const { return (rows + unit * kScaleBlock - 1) / (unit * kScaleBlock) * unit; }
  constexpr int64_t group_of(int64_t row) const { return row / (unit * kScaleBlock) * unit + row % unit; }
  static constexpr int64_t scale_stride(int64_t stride) {
    return (stride + 4 * kScaleBlock - 1) / (4 * kScaleBlock) * 4;
  }
  // Words between the groups of two rows: an odd number of 16 bytes, so that those of eight rows lie in eight different
  // banks of shared memory.
  constexpr int64_t group_stride(int64_t stride) const { return 4 * ((stride / group + 3) / 4 | 1); }
  // Words of 32 bits.
  constexpr int64_t scales(int64_t rows, int64_t stride) const {
    return is_int4()   ? rows * group_stride(stride)
           : !is_fp8() ? 0
           : in_blocks ? groups(rows) * scale_stride(stride)
                       : rows;
  }
  // The size of `rows` rows and their scales, a multiple of 16.
  constexpr int64_t bytes(int64_t rows, int64_t stride) const {
    return (rows * row_bytes(stride) + scales(rows, stride) * 4 + 15) / 16 * 16;
  }

  // Those of a kernel whose weights are not in bf16 (product/format/weights.cuh).
  constexpr ShapeConstants<3> constants() const {
    return {{{"kFormat", static_cast<int64_t>(code)},
             {"kScaleColumns", is_int4()   ? group
                               : in_blocks ? kScaleBlock
                                           : 0},
             {"kScaleUnit", unit}}};
  }
  constexpr bool operator==(const WeightLayout&) const = default;
};

}  // namespace nodewright
