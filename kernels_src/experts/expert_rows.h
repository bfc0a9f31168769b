// Which words of a row of an expert's matrix a lane has, and what it keeps of x for them. For the host and the kernels.
#pragma once

#include "kernels_src/product/format/weight_layout.h"

namespace nodewright {

// `parts`: warps that share the columns of a row.
constexpr int64_t expert_words(int64_t stride, int64_t word_columns, int64_t parts) {
  const int64_t at_once = 32 * parts * word_columns;
  return (stride + at_once - 1) / at_once;
}

// Shared memory of a part of x in fp16 (experts/expert_halves.cuh).
constexpr int64_t expert_halves_bytes(const WeightLayout& weights, int64_t stride, int64_t parts) {
  if (!weights.is_quantized()) return 0;
  const int64_t columns = weights.word_columns(), of_ones = weights.has_nibbles() ? 32 * (128 / weights.group) : 0;
  return expert_words(stride, columns, parts) * (columns / 8 * 512 + of_ones);
}

}  // namespace nodewright
