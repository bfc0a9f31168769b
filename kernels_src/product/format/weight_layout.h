// How the elements of a weight matrix W lie in memory. For the host and the kernels.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// As the constant kFormat numbers them. fp8: e4m3, a byte each, with fp32 scales after the rows. The others are
// integers q, without a sign, and have what a group of a row's columns shares after the rows:
//   int4        of 4 bits, scale * (q - zero): a word of an fp32 scale whose lowest byte is the zero
//   q4          of 4 bits, scale * (q - 8): an fp16 scale
//   q4_offset   of 4 bits, scale * q + offset: an fp16 scale, then an fp16 offset
//   q8          of 8 bits, scale * (q - 128): an fp16 scale
//   q8_offset   of 8 bits, scale * q + offset: an fp16 scale, then an fp16 offset
enum class WeightCode : uint8_t { bf16 = 0, fp8 = 1, int4 = 2, q4 = 3, q4_offset = 4, q8 = 5, q8_offset = 6 };

// W [rows, stride], row-major. The scales of FP8 weights follow the last row: one a row, or of blocks of
// kScaleBlock rows and as many columns, [groups of rows, blocks of columns] with padding to 16 bytes. A group is
// kScaleBlock rows whose numbers differ by multiples of `unit`: where gate and up rows alternate, group 2 i is of
// gates, 2 i + 1 of the same ups.
//
// Codes of 4 bits: 128 columns are 64 bytes, the words of four lanes. 32-bit piece j of lane t's 16 bytes holds columns
// 32 j + 8 t to 32 j + 8 t + 7, of which column 2 p is bits 4 p to 4 p + 3, column 2 p + 1 bits 4 p + 16 to 4 p + 19.
// Those of 8 bits lie in order. After the last row, of codes with groups: [rows, group_stride(stride)] words of
// 32 bits with what these share.
struct WeightLayout {
  static constexpr int64_t kScaleBlock = 128;

  WeightCode code = WeightCode::bf16;
  bool in_blocks = false;  // scales are of blocks
  int64_t unit = 1;        // of groups of rows
  int64_t group = 0;       // columns of a row that share a scale: of int4 32, 64 or 128, of q8 16 or 32, of others 32

  constexpr bool is_fp8() const { return code == WeightCode::fp8; }
  constexpr bool is_int4() const { return code == WeightCode::int4; }
  constexpr bool is_grouped() const { return code >= WeightCode::int4; }
  constexpr bool is_quantized() const { return code != WeightCode::bf16; }
  constexpr bool has_nibbles() const { return code >= WeightCode::int4 && code <= WeightCode::q4_offset; }
  constexpr int64_t element_bits() const { return has_nibbles() ? 4 : is_quantized() ? 8 : 16; }
  constexpr int64_t row_bytes(int64_t stride) const { return stride * element_bits() / 8; }
  constexpr int64_t word_columns() const { return 128 / element_bits(); }  // of 16 bytes
  // The stride is a multiple of these.
  constexpr int64_t padded_to() const { return is_grouped() ? 128 : word_columns(); }

  // The bytes that a group shares.
  constexpr int64_t group_bytes() const { return code == WeightCode::q4 || code == WeightCode::q8 ? 2 : 4; }
  // 32-bit words of what the groups of a row share, and of those that 16 bytes of a row have columns of.
  constexpr int64_t group_words(int64_t stride) const { return stride / group * group_bytes() / 4; }
  // Between the groups of two rows: an odd number of 16 bytes, so that those of eight rows lie in eight different banks
  // of shared memory.
  constexpr int64_t group_stride(int64_t stride) const { return 4 * ((group_words(stride) + 3) / 4 | 1); }
  constexpr int64_t group_words_of_word() const { return !is_grouped() ? 0 : has_nibbles() ? group_words(128) : 1; }

  constexpr int64_t groups(int64_t rows) const { return (rows + unit * kScaleBlock - 1) / (unit * kScaleBlock) * unit; }
  constexpr int64_t group_of(int64_t row) const { return row / (unit * kScaleBlock) * unit + row % unit; }
  static constexpr int64_t scale_stride(int64_t stride) {
    return (stride + 4 * kScaleBlock - 1) / (4 * kScaleBlock) * 4;
  }
  // Words of 32 bits.
  constexpr int64_t scales(int64_t rows, int64_t stride) const {
    return is_grouped() ? rows * group_stride(stride)
           : !is_fp8()  ? 0
           : in_blocks  ? groups(rows) * scale_stride(stride)
                        : rows;
  }
  // The size of `rows` rows and their scales, a multiple of 16.
  constexpr int64_t bytes(int64_t rows, int64_t stride) const {
    return (rows * row_bytes(stride) + scales(rows, stride) * 4 + 15) / 16 * 16;
  }

  // Those of a kernel whose weights are not in bf16 (product/format/weights.cuh).
  constexpr ShapeConstants<3> constants() const {
    return {{{"kFormat", static_cast<int64_t>(code)},
             {"kScaleColumns", is_grouped() ? group
                               : in_blocks  ? kScaleBlock
                                            : 0},
             {"kScaleUnit", unit}}};
  }
  constexpr bool operator==(const WeightLayout&) const = default;
};

constexpr const char* name_of(const WeightLayout& layout) {
  constexpr const char* kNames[] = {"bf16", "fp8", "int4", "q4", "q4_offset", "q8", "q8_offset"};
  return kNames[static_cast<int>(layout.code)];
}

}  // namespace nodewright
