// The patches of nodes that are no kernels: copies, fills, values, host functions, events.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "graph/change/patch_rules.h"
#include "graph/copies/copy_shape.h"
#include "graph/patch.h"

namespace nodewright {
namespace {

// One end of a copy, against the range that it was built with.
void check_copy_end(const Plan& plan, const PlanNode& node, std::string_view which, const CopyEnd& end, bool host,
                    uint64_t bytes) {
  const Use* use = use_of(node, which);
  const uint64_t begin = plan.buffers[use->buffer].range.address + use->offset;
  const CUarray array = which == "to" ? node.copy.to_array : node.copy.from_array;
  if (end.array != array)
    refuse_patch(node,
                 fmt::format("'{}' {}", which,
                             array == nullptr       ? "was memory and is to be an array"
                             : end.array == nullptr ? "was in an array and is to be memory"
                                                    : "was in another array"),
                 "add a copy node for each array");
  if (end.host != host)
    refuse_patch(node,
                 fmt::format("'{}' was {} memory and is to be {} memory", which, host ? "host" : "device",
                             end.host ? "host" : "device"),
                 "add a copy node for each direction");
  if (bytes > end.bytes || end.address < begin || end.address - begin > use->bytes ||
      bytes > use->bytes - (end.address - begin))
    refuse_patch(node,
                 fmt::format("'{}' to {} bytes at {:#x}: outside {}, {:#x} + {} bytes", which, bytes, end.address,
                             describe_range(plan, use->buffer, use->offset, use->bytes), begin, use->bytes),
                 "add the copy with the widest range it will ever have");
  if (end.array == nullptr) return;
  if (std::string problem = array_end_problem(end, {.bytes = bytes}, which); !problem.empty())
    refuse_patch(node, std::move(problem), "copy whole elements");
}

// The same of rows.
struct PatchedRows {
  uint64_t bytes = 0, rows = 1, pitch = 0;
};
void check_row_end(const Plan& plan, const PlanNode& node, std::string_view which, const CopyEnd& end, bool host,
                   const PatchedRows& rows) {
  if (end.host != host)
    refuse_patch(node,
                 fmt::format("'{}' was {} memory and is to be {} memory", which, host ? "host" : "device",
                             end.host ? "host" : "device"),
                 "add a copy node for each direction");
  if (rows.rows > 1 && rows.pitch < rows.bytes)
    refuse_patch(node, fmt::format("rows of {} bytes lie {} bytes apart in '{}'", rows.bytes, rows.pitch, which),
                 "pass a pitch of at least a row");
  std::vector<std::pair<uint64_t, uint64_t>> built;  // from and up to: the rows, joined where they adjoin
  for (const Use& use : node.uses)
    if (use.field == which) {
      const uint64_t begin = plan.buffers[use.buffer].range.address + use.offset;
      built.emplace_back(begin, begin + use.bytes);
    }
  std::sort(built.begin(), built.end());
  size_t last = 0;
  for (size_t i = 1; i < built.size(); ++i)
    if (built[i].first == built[last].second)
      built[last].second = built[i].second;
    else
      built[++last] = built[i];
  built.resize(last + 1);
  for (uint64_t row = 0; row < rows.rows; ++row) {
    const uint64_t begin = end.address + row * rows.pitch;
    const auto above = std::upper_bound(built.begin(), built.end(), std::pair(begin, ~uint64_t{0}));
    if (above != built.begin() && std::prev(above)->second >= begin && std::prev(above)->second - begin >= rows.bytes &&
        end.bytes >= rows.bytes && begin - end.address <= end.bytes - rows.bytes)
      continue;
    refuse_patch(node,
                 fmt::format("row {} of '{}', {:#x} + {} bytes, is outside the end given or the rows that the node was "
                             "built with, from {:#x} to {:#x}",
                             row, which, begin, rows.bytes, built.front().first, built.back().second),
                 "add the copy with the widest rows it will ever have");
  }
}

}  // namespace

void refuse_patch(const PlanNode& node, std::string detail, std::string advice) {
  throw Error({.doing = "patch node", .object = node.name, .detail = std::move(detail), .advice = std::move(advice)});
}

const Use* use_of(const PlanNode& node, std::string_view field) {
  const auto found =
      std::find_if(node.uses.begin(), node.uses.end(), [&](const Use& candidate) { return candidate.field == field; });
  return found == node.uses.end() ? nullptr : &*found;
}

void PatchSet::copy(CopyNode id, const CopyEnd& to, const CopyEnd& from, uint64_t bytes) {
  const PlanNode& node = node_of(id, {NodeKind::memcpy}, "ends");
  if (node.copy.rows > 1) refuse_patch(node, "it copies rows", "say their shape: PatchSet::copy_rows");
  if (node.copy.slices > 1) refuse_patch(node, "it copies a box", "build a graph of the other box: replace()");
  // The driver takes no parameters of such a node, not even its own: CUDA_ERROR_INVALID_VALUE on an H200 (580.159.04).
  if (is_allocated(node.copy.to) || is_allocated(node.copy.from))
    refuse_patch(node, "an end lies in memory that the plan allocates", "copy to or from a DeviceBuffer");
  if (bytes == 0) refuse_patch(node, "0 bytes to copy", "switch the node off instead");
  const Plan& plan = *exec_->built_plan_of(id).plan;
  check_copy_end(plan, node, "to", to, node.copy.to_host, bytes);
  check_copy_end(plan, node, "from", from, node.copy.from_host, bytes);
  CopyParameters copy = node.copy;
  copy.to = to.address;
  copy.from = from.address;
  copy.bytes = bytes;
  change_of(id).copy = copy;
}

// Each row within the bytes of rows that the copy was built with: edges were derived row by row.
void PatchSet::copy_rows(CopyNode id, const CopyEnd& to, const CopyEnd& from, const CopyRows& shape) {
  const PlanNode& node = node_of(id, {NodeKind::memcpy}, "ends");
  if (node.copy.slices > 1) refuse_patch(node, "it copies a box", "build a graph of the other box: replace()");
  if (node.copy.to_array != nullptr || node.copy.from_array != nullptr)
    refuse_patch(node, "an end is in an array, of which one row alone takes other parameters", "PatchSet::copy");
  if (is_allocated(node.copy.to) || is_allocated(node.copy.from))
    refuse_patch(node, "an end lies in memory that the plan allocates", "copy to or from a DeviceBuffer");
  if (shape.bytes == 0 || shape.rows == 0) refuse_patch(node, "0 bytes to copy", "switch the node off instead");
  const Plan& plan = *exec_->built_plan_of(id).plan;
  check_row_end(plan, node, "to", to, node.copy.to_host, {shape.bytes, shape.rows, shape.to_pitch});
  check_row_end(plan, node, "from", from, node.copy.from_host, {shape.bytes, shape.rows, shape.from_pitch});
  CopyParameters copy = node.copy;
  copy.to = to.address;
  copy.from = from.address;
  copy.bytes = shape.bytes;
  copy.rows = shape.rows;
  copy.to_pitch = shape.rows == 1 ? 0 : shape.to_pitch;
  copy.from_pitch = shape.rows == 1 ? 0 : shape.from_pitch;
  change_of(id).copy = copy;
}

void PatchSet::host(NodeId id, std::function<void()> function) {
  const PlanNode& node = node_of(id, {NodeKind::host}, "function");
  if (!function) refuse_patch(node, "it would have no function", "pass what is to be called");
  const auto call = std::make_shared<HostCall>();
  call->node_name = node.name;
  call->function = std::move(function);
  change_of(id).host = call;
}

void PatchSet::event(NodeId id, const Event& event) {
  const PlanNode& node = node_of(id, {NodeKind::event_record, NodeKind::event_wait}, "event");
  if (event.get() == nullptr) refuse_patch(node, "the event was moved away", "keep the event where it is");
  change_of(id).event = event.get();
}

void PatchSet::fill(FillNode id, uint32_t value) {
  const PlanNode& node = node_of(id, {NodeKind::memset}, "value");
  const uint32_t element_bytes = node.fill.element_bytes;
  if (element_bytes < sizeof value && value >> (8 * element_bytes) != 0)
    refuse_patch(node, fmt::format("the value {:#x} for elements of {} bytes", value, element_bytes),
                 "pass a value that an element holds");
  change_of(id).fill = value;
}

void PatchSet::value(ValueNode id, size_t operation, uint64_t value) {
  const PlanNode& node = node_of(id, {NodeKind::values}, "value operations");
  if (operation >= node.values.size())
    refuse_patch(node, fmt::format("it has {} operations and no number {}", node.values.size(), operation), "");
  if (node.values[operation].bytes == 4 && value >> 32 != 0)
    refuse_patch(node, fmt::format("the value {:#x} for an operation of 32 bits", value),
                 "pass a value that 32 bits hold");
  change_of(id).values[operation] = value;
}

}  // namespace nodewright
