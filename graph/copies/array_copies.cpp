// GraphBuilder's copies to and from CUDA arrays, and who may use an array: its memory has no addresses.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/builder_state.h"
#include "graph/copies/copy_shape.h"
#include "graph/edges/touched_ranges.h"
#include "runtime/context_guard.h"

namespace nodewright {

ArrayRange GraphBuilder::declare_array(std::string name, CUarray array, Live live) {
  Device& device = *state_->plan_.device;
  const ContextGuard current(device);
  ArrayRange range{array, 0, array_shape(device.driver(), array, "declare array", name)};
  range.address = device.arrays().address_of(array, device.properties().ordinal, range.shape.bytes());
  state_->declare({std::move(name), range.address, range.shape.bytes(), "array"}, live);
  return range;
}

CopyEnd ArrayRange::at(uint64_t x_bytes, uint64_t y, uint64_t z) const {
  const bool inside = x_bytes < shape.row_bytes && y < shape.rows && z < shape.slices;
  const uint64_t offset = inside ? (z * shape.rows + y) * shape.row_bytes + x_bytes : 0;
  CopyEnd end(address + offset, inside ? shape.bytes() - offset : 0, false);
  end.array = array;
  end.array_shape = shape;
  return end;
}

// The box lies within the array, in whole elements; otherwise why not.
std::string array_end_problem(const CopyEnd& end, const CopyBox& box, std::string_view field) {
  const ArrayShape& shape = end.array_shape;
  const ArrayOrigin at = origin_of(end.address, shape.row_bytes, shape.rows);
  if (end.bytes == 0) return fmt::format("'{}' begins outside its array", field);
  if (at.x_bytes % shape.element_bytes != 0 || box.bytes % shape.element_bytes != 0)
    return fmt::format("'{}' is an array of elements of {} bytes, and rows of {} bytes begin at byte {}", field,
                       shape.element_bytes, box.bytes, at.x_bytes);
  if (box.bytes > shape.row_bytes - at.x_bytes || box.rows > shape.rows - at.y || box.slices > shape.slices - at.z)
    return fmt::format(
        "{} slices of {} rows of {} bytes at ({}, {}, {}) in '{}', an array of {} slices of {} rows of {} "
        "bytes",
        box.slices, box.rows, box.bytes, at.x_bytes, at.y, at.z, field, shape.slices, shape.rows, shape.row_bytes);
  return "";
}

CopyNode GraphBuilder::State::add_array_copy(std::string_view name, const CopyEnd& to, const CopyEnd& from,
                                             const CopyBox& box, const NodeOptions& options) {
  PlanNode node = new_node(name, NodeKind::memcpy);
  if (box.bytes == 0 || box.rows == 0 || box.slices == 0) refuse(node, "0 bytes to copy", "copy at least one byte");
  const auto check_end = [&](std::string_view field, const CopyEnd& end, uint64_t pitch, uint64_t height) {
    if (end.array == nullptr) return check_box_end(node, field, box, pitch, height, end.bytes);
    if (pitch != 0 || height != 0)
      refuse(node, fmt::format("'{}' is an array, and the box gives it a pitch or a height", field),
             "leave them out: an array has its own");
    if (std::string problem = array_end_problem(end, box, field); !problem.empty())
      refuse(node, std::move(problem), "copy a box of the array");
  };
  check_end("to", to, box.to_pitch, box.to_height);
  check_end("from", from, box.from_pitch, box.from_height);
  node.copy = copy_of_box(to, from, box);
  check_allowed_in_body(node);
  std::vector<AddressedUse> uses;
  for_each_row(node.copy, [&](std::string_view field, uint64_t address, uint64_t bytes, Access access) {
    uses.push_back({field, address, bytes, access, 1});
  });
  return {add(std::move(node), uses, options)};
}

// A copy with the array's handle may touch it, and who lists it as a use, as a kernel that reads its texture does.
// Nobody gets its address: there is none.
void GraphBuilder::State::check_arrays(const PlanNode& node) const {
  for (const Use& use : node.uses) {
    if (!is_array(plan_.buffers[use.buffer].range.address)) continue;
    const bool is_pointer = node.kind == NodeKind::kernel &&
                            std::any_of(node.fields.begin(), node.fields.end(),
                                        [&](const FieldInfo& f) { return f.name == use.field && is_memory(f.role); });
    const bool plain_copy =
        node.kind == NodeKind::memcpy && (use.field == "to" ? node.copy.to_array : node.copy.from_array) == nullptr;
    if (!is_pointer && !plain_copy && node.kind != NodeKind::memset && node.kind != NodeKind::values) continue;
    refuse(node,
           fmt::format("field '{}' is {}, an array, whose memory has no addresses", use.field,
                       describe_range(plan_, use.buffer, use.offset, use.bytes)),
           "copy with copy_box() and ArrayRange::at(); pass a texture or a surface as with_uses(handle, "
           "reads(array.bytes()))");
  }
}

}  // namespace nodewright
