// A matrix of integer codes that is stored transposed, [in_features, out_features], as GPTQ and AWQ do.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "models/weights/formats/encoded_matrix.h"

namespace nodewright {

// w[n, k] = (code - zero) * scale, zero and scale those of the group of k and of n.
struct ColumnPackedParts {
  int64_t bits = 4;
  int64_t rows = 0, cols = 0;  // of the matrix: out_features and in_features
  int64_t group = 128;         // in_features
  bool packs_inputs = false;   // a word packs consecutive in_features, else consecutive out_features
  std::array<uint8_t, 16> place =
      {};                    // position in its word of out_feature c * codes_of_word() + i; also of zero points
  uint32_t zero_addend = 0;  // added to a word of zeros, carries included
  const TensorInfo* codes = nullptr;  // I32 [inputs / codes of a word, outputs], or [inputs, outputs / codes of a word]
  const TensorInfo* scales = nullptr;  // [groups, outputs]
  const TensorInfo* zeros = nullptr;   // I32 [groups, outputs / codes of a word]
  const TensorInfo* groups = nullptr;  // I32 [inputs]: the group of each input; null: in order

  int64_t codes_of_word() const { return 32 / bits; }
  int64_t group_count() const { return (cols + group - 1) / group; }
};

// `format`: for people.
std::unique_ptr<EncodedMatrix> column_packed_matrix(std::string format, const ColumnPackedParts& parts);

}  // namespace nodewright
