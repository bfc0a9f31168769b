// GraphBuilder::copy_box: a copy in three dimensions.
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "graph/builder_state.h"
#include "graph/copies/copy_shape.h"
#include "graph/edges/touched_ranges.h"

namespace nodewright {

CopyNode GraphBuilder::copy_box(std::string_view name, const CopyEnd& to, const CopyEnd& from, const CopyBox& box,
                                const NodeOptions& options) {
  if (to.array != nullptr || from.array != nullptr) return state_->add_array_copy(name, to, from, box, options);
  if (box.slices == 1) return copy_rows(name, to, from, {box.bytes, box.rows, box.to_pitch, box.from_pitch}, options);
  PlanNode node = state_->new_node(name, NodeKind::memcpy);
  if (to.host && from.host)
    state_->refuse(node, "both ends are host memory", "copy on the host, or through device memory");
  if (box.bytes == 0 || box.rows == 0 || box.slices == 0)
    state_->refuse(node, "0 bytes to copy", "copy at least one byte");
  state_->check_box_end(node, "to", box, box.to_pitch, box.to_height, to.bytes);
  state_->check_box_end(node, "from", box, box.from_pitch, box.from_height, from.bytes);
  if (box.rows == 1)
    return copy_rows(name, to, from,
                     {box.bytes, box.slices, box.to_height * box.to_pitch, box.from_height * box.from_pitch}, options);
  if (box.to_height == box.rows && box.from_height == box.rows)
    return copy_rows(name, to, from, {box.bytes, box.slices * box.rows, box.to_pitch, box.from_pitch}, options);
  node.copy = copy_of_box(to, from, box);
  std::vector<AddressedUse> uses;
  uses.reserve(2 * box.slices * box.rows);
  for_each_row(node.copy, [&](std::string_view field, uint64_t address, uint64_t bytes, Access access) {
    uses.push_back({field, address, bytes, access, 1});
  });
  return {state_->add(std::move(node), uses, options)};
}

void GraphBuilder::State::check_box_end(const PlanNode& node, std::string_view field, const CopyBox& box,
                                        uint64_t pitch, uint64_t height, uint64_t held_bytes) const {
  check_rows(node, field, {box.bytes, box.rows, pitch}, held_bytes);
  if (box.slices == 1) return;
  if (height < box.rows || pitch < box.bytes)
    refuse(node,
           fmt::format("slices of {} rows of {} bytes lie {} rows of {} bytes apart in '{}'", box.rows, box.bytes,
                       height, pitch, field),
           "pass a pitch of at least a row and a height of at least a slice's rows");
  if (height > std::numeric_limits<uint64_t>::max() / pitch)
    refuse(node, fmt::format("slices lie {} rows of {} bytes apart in '{}'", height, pitch, field),
           "pass the height of the tensor");
  const uint64_t slice_bytes = (box.rows - 1) * pitch + box.bytes;
  check_rows(node, field, {slice_bytes, box.slices, height * pitch}, held_bytes);
}

}  // namespace nodewright
