// What the fuzzers of quantized weights do with a matrix that a checkpoint accepts: its first rows are decoded,
// together and one by one, to the same bits.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "models/weights/checkpoint.h"
#include "models/weights/formats/encoded_matrix.h"
#include "tests/fuzz/fuzz_target.h"

namespace nodewright::fuzz {

inline void decode_rows(const Checkpoint& checkpoint, const std::string& name, const std::vector<int64_t>& shape) {
  const TensorInfo& tensor = checkpoint.require(name, shape);
  require(tensor.file != nullptr, "a tensor is in a file");
  if (tensor.encoded == nullptr) return;
  constexpr int64_t kMostRows = 8, kMostCols = 1 << 16;
  const int64_t rows = std::min(shape.at(0), kMostRows), cols = shape.size() < 2 ? 1 : shape[1];
  if (rows < 1 || cols < 1 || cols > kMostCols) return;
  const auto width = static_cast<size_t>(cols);
  std::vector<float> together(static_cast<size_t>(rows) * width), alone(together.size());
  tensor.encoded->decode(0, rows, together);
  for (int64_t row = 0; row < rows; ++row)
    tensor.encoded->decode(row, 1, std::span(alone).subspan(static_cast<size_t>(row) * width, width));
  require(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)) == 0,
          "rows are the same together and alone");
}

}  // namespace nodewright::fuzz
