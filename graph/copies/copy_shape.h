// Copies by their ends and boxes: what builders and patches make of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/graph_builder.h"

namespace nodewright {

// The box lies within the array that the end is in, and is of whole elements; otherwise why not.
std::string array_end_problem(const CopyEnd& end, const CopyBox& box, std::string_view field);

// An array's pitch and height are its own; those of memory count where there are several rows, or slices.
inline CopyParameters copy_of_box(const CopyEnd& to, const CopyEnd& from, const CopyBox& box) {
  const auto pitch = [&](const CopyEnd& end, uint64_t given) {
    return end.array != nullptr ? end.array_shape.row_bytes : box.rows * box.slices == 1 ? 0 : given;
  };
  const auto height = [&](const CopyEnd& end, uint64_t given) {
    return end.array != nullptr ? end.array_shape.rows : box.slices == 1 ? 0 : given;
  };
  return {.to = to.address,
          .from = from.address,
          .bytes = box.bytes,
          .to_host = to.host,
          .from_host = from.host,
          .rows = box.rows,
          .to_pitch = pitch(to, box.to_pitch),
          .from_pitch = pitch(from, box.from_pitch),
          .slices = box.slices,
          .to_height = height(to, box.to_height),
          .from_height = height(from, box.from_height),
          .to_array = to.array,
          .from_array = from.array};
}

}  // namespace nodewright
