// A matrix of codes row by row with a grid of scales beside it: w = (code - zero) * scale. FP8, packed integers and
// FP4 of several libraries are of this kind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "models/weights/formats/encoded_matrix.h"

namespace nodewright {

// What a code of a row is.
enum class CodeKind : uint8_t {
  e4m3,    // a byte
  int8,    // a byte, two's complement
  packed,  // `bits` of a little-endian 32-bit word, the lowest first, offset by 2^(bits - 1); a row begins with a word
  e2m1,    // half a byte, the low half first
};

// The tensors and how they lie. A scale is that of block_rows x block_cols elements; blocks at the edges may be cut.
struct ScaledParts {
  CodeKind kind = CodeKind::e4m3;
  int64_t bits = 8;                         // of a packed code
  int64_t rows = 0, cols = 0;               // of the matrix
  int64_t block_rows = 1, block_cols = 1;   // of a scale
  const TensorInfo* codes = nullptr;        // [rows, bytes of a row]
  const TensorInfo* scales = nullptr;       // [ceil(rows / block_rows), ceil(cols / block_cols)], read_values()
  const TensorInfo* zeros = nullptr;        // of each scale: I8, or packed as codes are, along the rows; null: zero
  const TensorInfo* groups = nullptr;       // I32 [cols]: the block of each column; null: in order
  const TensorInfo* global = nullptr;       // F32, one element, a factor of all scales; null: one
  bool global_divides = false;              // scales are divided by it
  const TensorInfo* whole_shape = nullptr;  // two integers, rows and cols, to be compared; or null

  int64_t grid_rows() const { return (rows + block_rows - 1) / block_rows; }
  int64_t grid_cols() const { return (cols + block_cols - 1) / block_cols; }
  int64_t codes_of_word() const { return 32 / bits; }
};

// `format`: for people.
std::unique_ptr<EncodedMatrix> scaled_matrix(std::string format, const ScaledParts& parts);

}  // namespace nodewright
