// The tables of the rows of a step as the device has them: one for each sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace nodewright::test {

// Block tables of rows and their sequences, at least one; tables without a row and entries of 1 << 30 are never read.
inline std::vector<int32_t> tables_of_sequences(const std::vector<int32_t>& of_rows,
                                                const std::vector<int32_t>& sequences, int64_t table_stride) {
  int32_t most = 1;
  for (const int32_t sequence : sequences)
    if (sequence < 1 << 30) most = std::max(most, sequence + 1);
  std::vector<int32_t> tables(static_cast<size_t>(most * table_stride), 1 << 30);
  for (size_t row = 0; row < sequences.size(); ++row)
    if (sequences[row] < 1 << 30)
      std::copy_n(of_rows.begin() + static_cast<int64_t>(row) * table_stride, table_stride,
                  tables.begin() + sequences[row] * table_stride);
  return tables;
}

}  // namespace nodewright::test
