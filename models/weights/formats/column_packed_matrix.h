// A matrix of int4 or int8 codes that lies with its inputs downwards, [inputs, outputs], as GPTQ and AWQ store it.
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
  int64_t rows = 0, cols = 0;          // of the matrix: outputs and inputs
  int64_t group = 128;                 // inputs
  bool packs_inputs = false;           // a word holds inputs below each other, else outputs beside each other
  std::array<uint8_t, 16> place = {};  // of output c * codes_of_word() + i in its word, in codes; zeros have the same
  uint32_t zero_addend = 0;            // added to a word of zeros, carries included
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
