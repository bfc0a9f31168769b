// The memory that copies, fills and values nodes touch, by their parameters.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// Calls f(field, address, bytes, access) for each row, those that are written first.
template <class Function>
void for_each_row(const CopyParameters& copy, const Function& f) {
  const auto end = [&](std::string_view field, uint64_t address, uint64_t pitch, uint64_t height, Access access) {
    for (uint64_t slice = 0; slice < copy.slices; ++slice)
      for (uint64_t row = 0; row < copy.rows; ++row)
        f(field, address + (slice * height + row) * pitch, copy.bytes, access);
  };
  end("to", copy.to, copy.to_pitch, copy.to_height, Access::out);
  end("from", copy.from, copy.from_pitch, copy.from_height, Access::in);
}
template <class Function>
void for_each_row(const FillParameters& fill, const Function& f) {
  for (uint64_t row = 0; row < fill.rows; ++row)
    f("to", fill.to + row * fill.pitch, fill.count * fill.element_bytes, Access::out);
}

// What the operations of one node do with one word, in their order.
struct WordUse {
  uint64_t address = 0, bytes = 0;
  bool read_first = false, written = false;

  Access access() const { return !written ? Access::in : read_first ? Access::inout : Access::out; }
};

std::vector<WordUse> word_uses(const std::vector<ValueOperation>& operations);

}  // namespace nodewright
