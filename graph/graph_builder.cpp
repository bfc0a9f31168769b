#include "graph/graph_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "graph/hazard_check.h"
#include "graph/reachability.h"

namespace nodewright {
namespace {

// CUDA C++ Programming Guide, "Technical specifications per compute capability": the same from 5.0 to 12.x.
constexpr unsigned kMaxGridX = 2147483647, kMaxGridYZ = 65535;
constexpr unsigned kMaxBlockXY = 1024, kMaxBlockZ = 64, kMaxBlockThreads = 1024;
// Programmatic dependent launch needs compute capability 9.0 (Programming Guide, same title).
constexpr int kProgrammaticMajor = 9;

Access access_of(Role role) {
  switch (role) {
    case Role::frozen:
      return Access::frozen;
    case Role::out:
      return Access::out;
    case Role::in_out:
      return Access::inout;
    case Role::in:
    case Role::scalar:
    case Role::condition:
      break;
  }
  return Access::in;
}

bool overlap(const Use& a, const Use& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

std::string in_hex(uint64_t address, uint64_t bytes) { return fmt::format("{:#x} + {} bytes", address, bytes); }

}  // namespace

NamedRange range_of(const PinnedBuffer& buffer, std::string kind) {
  return {buffer.name(), reinterpret_cast<uint64_t>(buffer.data()), buffer.bytes(), std::move(kind)};
}
NamedRange range_of(const DeviceBuffer& buffer, std::string kind) {
  return {buffer.name(), buffer.address(), buffer.bytes(), std::move(kind)};
}

GraphBuilder::GraphBuilder(Device& device, std::string name, std::optional<int> bucket) {
  plan_.name = std::move(name);
  plan_.bucket = bucket;
  plan_.device = &device;
}

void GraphBuilder::declare(NamedRange range, Live live) {
  const auto refuse_range = [&](std::string detail) {
    throw Error({.doing = "declare buffer",
                 .object = range.name,
                 .detail = fmt::format("in plan '{}': {}", plan_.name, detail),
                 .advice = "declare every range once, under one name"});
  };
  if (const auto found = buffer_named_.find(range.name); found != buffer_named_.end()) {
    Buffer& buffer = plan_.buffers[found->second];
    if (buffer.range.address != range.address || buffer.range.bytes != range.bytes)
      refuse_range(fmt::format("the name stands for {} already, not {}",
                               in_hex(buffer.range.address, buffer.range.bytes), in_hex(range.address, range.bytes)));
    buffer.live_in |= live.live_in;
    buffer.live_out |= live.live_out;
    return;
  }
  if (range.bytes == 0) refuse_range("it has 0 bytes");
  if (range.address > std::numeric_limits<uint64_t>::max() - range.bytes)
    refuse_range(in_hex(range.address, range.bytes) + " is beyond the last address");
  const auto refuse_overlap = [&](uint32_t index) {
    const NamedRange& other = plan_.buffers[index].range;
    refuse_range(fmt::format("{} overlaps '{}', {}", in_hex(range.address, range.bytes), other.name,
                             in_hex(other.address, other.bytes)));
  };
  const auto next = buffer_at_.lower_bound(range.address);
  if (next != buffer_at_.end() && next->first < range.address + range.bytes) refuse_overlap(next->second);
  if (next != buffer_at_.begin()) {
    const uint32_t before = std::prev(next)->second;
    const NamedRange& other = plan_.buffers[before].range;
    if (other.address + other.bytes > range.address) refuse_overlap(before);
  }
  const auto index = static_cast<uint32_t>(plan_.buffers.size());
  buffer_at_.emplace(range.address, index);
  buffer_named_.emplace(range.name, index);
  plan_.buffers.push_back({std::move(range), live.live_in, live.live_out});
}

GraphBuilder::Scope GraphBuilder::scope(std::string_view name) {
  scopes_.emplace_back(name);
  return Scope(*this);
}

NodeId GraphBuilder::copy(std::string_view name, const CopyEnd& to, const CopyEnd& from, uint64_t bytes,
                          const std::vector<NodeId>& after) {
  PlanNode node = new_node(name, NodeKind::memcpy);
  if (to.host && from.host) refuse(node, "both ends are host memory", "copy on the host, or through device memory");
  if (bytes == 0 || bytes > to.bytes || bytes > from.bytes)
    refuse(node, fmt::format("{} bytes from {} bytes to {} bytes", bytes, from.bytes, to.bytes),
           "copy at least 1 byte and no more than either end has");
  node.copy = {to.address, from.address, bytes, to.host, from.host};
  const std::array<AddressedUse, 2> uses{AddressedUse{"to", to.address, bytes, Access::out, 1},
                                         AddressedUse{"from", from.address, bytes, Access::in, 1}};
  return add(std::move(node), uses, std::nullopt, after);
}

NodeId GraphBuilder::add_fill(std::string_view name, uint64_t to, uint64_t bytes,
                              std::span<const unsigned char> pattern, const std::vector<NodeId>& after) {
  PlanNode node = new_node(name, NodeKind::memset);
  if (bytes == 0) refuse(node, "0 bytes to fill", "fill at least one element");
  if (pattern.size() == 4) {
    uint32_t value = 0;
    std::memcpy(&value, pattern.data(), sizeof value);
    node.fill = {to, value, 4, bytes / 4};
  } else {
    for (const unsigned char byte : pattern)
      if (byte != pattern[0])
        refuse(node, fmt::format("a value of {} bytes that differ from each other", pattern.size()),
               "fill elements of 1 or 4 bytes, or a value whose bytes are all equal");
    node.fill = {to, pattern[0], 1, bytes};
  }
  const std::array<AddressedUse, 1> uses{AddressedUse{"to", to, bytes, Access::out, node.fill.element_bytes}};
  return add(std::move(node), uses, std::nullopt, after);
}

NodeId GraphBuilder::empty(std::string_view name, const std::vector<NodeId>& after) {
  return add(new_node(name, NodeKind::empty), {}, std::nullopt, after);
}

PlanNode GraphBuilder::new_node(std::string_view name, NodeKind kind) const {
  PlanNode node;
  node.id = static_cast<uint32_t>(plan_.nodes.size());
  for (const std::string& scope : scopes_) node.name += scope + ".";
  node.name += name;
  node.layer = scopes_.empty() ? "" : scopes_.front();
  node.kind = kind;
  if (name.empty()) refuse(node, "its name is empty", "name the node after what it does");
  if (names_.contains(node.name)) refuse(node, "the name is taken by another node", "give it a name of its own");
  return node;
}

PlanNode GraphBuilder::new_kernel_node(std::string_view name, const LoadedKernel* kernel, const LaunchShape& shape,
                                       uint64_t args_bytes) const {
  PlanNode node = new_node(name, NodeKind::kernel);
  if (kernel == nullptr) refuse(node, "it has no kernel", "make the kernel with typed_kernel");
  node.kernel = kernel;
  node.kernel_name = kernel->name;
  node.waits_for_inputs = kernel->waits_for_inputs;
  node.shape = shape;
  if (kernel->args_bytes != args_bytes)
    refuse(node,
           fmt::format("the arguments have {} bytes and kernel '{}' takes {}", args_bytes, kernel->name,
                       kernel->args_bytes),
           "launch the kernel with the struct that it was compiled with");
  check_shape(node);
  return node;
}

NodeId GraphBuilder::add(PlanNode node, std::span<const AddressedUse> uses, const std::optional<Traffic>& traffic,
                         const std::vector<NodeId>& after) {
  for (const AddressedUse& use : uses)
    if (use.bytes != 0) node.uses.push_back(locate(node, use));
  check_overlaps(node);
  check_initialised(node);
  check_frozen(node);
  std::map<uint32_t, std::vector<Reason>> before;
  for (const NodeId& earlier : after) {
    if (earlier.plan != plan_token(plan_.name) || earlier.index >= plan_.nodes.size())
      refuse(node,
             fmt::format("it is to follow node {}, which is not one of the {} nodes of plan '{}'", earlier.index,
                         plan_.nodes.size(), plan_.name),
             "pass ids that this builder returned");
    before[earlier.index] = {Reason{.hazard = Hazard::declared}};
  }

  // Nothing can be refused from here on.
  std::vector<RangeUse> ranges, frozen;
  for (const Use& use : node.uses) {
    const ByteRange range = address_range(use);
    ranges.push_back({range.address, range.bytes, use.access});
    if (use.access == Access::frozen) frozen.push_back({range.address, range.bytes, Access::in});
  }
  frozen_reads_.place(node.id, frozen);
  for (const RequiredOrder& order : hazards_.place(node.id, ranges)) {
    const Use& use = node.uses[order.use];
    const Reason reason{order.hazard, use.buffer, order.address - plan_.buffers[use.buffer].range.address, order.bytes};
    std::vector<Reason>& reasons = before[order.before];
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) reasons.push_back(reason);
  }
  candidates_.emplace_back();
  for (auto& [from, reasons] : before) candidates_.back().push_back({from, std::move(reasons)});

  for (const Use& use : node.uses) {
    if (reads(use.access)) node.traffic.bytes_read += use.bytes;
    if (writes(use.access)) node.traffic.bytes_written += use.bytes;
  }
  if (traffic) node.traffic = *traffic;
  names_.insert(node.name);
  plan_.nodes.push_back(std::move(node));
  return {plan_.nodes.back().id, plan_token(plan_.name)};
}

GraphBuilder::AddressedUse GraphBuilder::memory_use(const PlanNode& node, const FieldInfo& field, uint64_t address,
                                                    uint64_t count) const {
  if (count > std::numeric_limits<uint64_t>::max() / field.element_bytes ||
      address > std::numeric_limits<uint64_t>::max() - count * field.element_bytes)
    refuse(node,
           fmt::format("field '{}' has {} elements of {} bytes at {:#x}, beyond the last address", field.name, count,
                       field.element_bytes, address),
           "pass a view of a declared buffer");
  return {field.name, address, count * field.element_bytes, access_of(field.role), field.element_bytes};
}

void GraphBuilder::check_envelope(const PlanNode& node, const AddressedUse& use, const AddressedUse& envelope) const {
  if (use.bytes == 0) return;
  if (envelope.address <= use.address && use.address + use.bytes <= envelope.address + envelope.bytes) return;
  refuse(node,
         fmt::format("field '{}' is at {}, outside its envelope {}", use.field, in_hex(use.address, use.bytes),
                     in_hex(envelope.address, envelope.bytes)),
         "widen the envelope");
}

void GraphBuilder::check_shape(const PlanNode& node) const {
  const auto& [grid, block, shared_bytes] = node.shape;
  const auto refuse_shape = [&](std::string limit) {
    refuse(node,
           fmt::format("grid {}x{}x{}, block {}x{}x{}, {} shared bytes: {}", grid[0], grid[1], grid[2], block[0],
                       block[1], block[2], shared_bytes, limit),
           "change the launch shape");
  };
  for (int axis = 0; axis < 3; ++axis) {
    const unsigned grid_limit = axis == 0 ? kMaxGridX : kMaxGridYZ;
    const unsigned block_limit = axis == 2 ? kMaxBlockZ : kMaxBlockXY;
    if (grid[axis] == 0 || grid[axis] > grid_limit)
      refuse_shape(fmt::format("grid {} must be 1 to {}", "xyz"[axis], grid_limit));
    if (block[axis] == 0 || block[axis] > block_limit)
      refuse_shape(fmt::format("block {} must be 1 to {}", "xyz"[axis], block_limit));
  }
  const auto most_threads = static_cast<unsigned>(
      node.kernel->max_threads > 0 ? std::min<int>(node.kernel->max_threads, kMaxBlockThreads) : kMaxBlockThreads);
  if (node.shape.threads() > most_threads)
    refuse_shape(fmt::format("kernel '{}' takes at most {} threads a block", node.kernel->name, most_threads));
  const DeviceProperties& device = plan_.device->properties();
  if (shared_bytes + node.kernel->static_shared_bytes > device.shared_optin_bytes)
    refuse_shape(fmt::format("with {} static bytes that is more than the {} of {}", node.kernel->static_shared_bytes,
                             device.shared_optin_bytes, device.name));
}

Use GraphBuilder::locate(const PlanNode& node, const AddressedUse& use) const {
  if (use.address % use.align_bytes != 0)
    refuse(node,
           fmt::format("field '{}' is at {:#x}, not a multiple of its element's {} bytes", use.field, use.address,
                       use.align_bytes),
           "align the view");
  auto it = buffer_at_.upper_bound(use.address);
  std::string nearest = "no buffer is declared below it";
  if (it != buffer_at_.begin()) {
    const uint32_t index = std::prev(it)->second;
    const NamedRange& range = plan_.buffers[index].range;
    if (use.address + use.bytes <= range.address + range.bytes)
      return {std::string(use.field), index, use.address - range.address, use.bytes, use.access};
    nearest = fmt::format("the nearest below is '{}', {}", range.name, in_hex(range.address, range.bytes));
  }
  refuse(node,
         fmt::format("field '{}' is {}, outside every declared buffer; {}", use.field, in_hex(use.address, use.bytes),
                     nearest),
         "declare the buffer, or correct the view");
}

void GraphBuilder::check_overlaps(const PlanNode& node) const {
  for (size_t i = 0; i < node.uses.size(); ++i)
    for (size_t j = i + 1; j < node.uses.size(); ++j) {
      const Use &a = node.uses[i], &b = node.uses[j];
      if (!overlap(a, b) || (!writes(a.access) && !writes(b.access))) continue;
      refuse(node,
             fmt::format("field '{}' ({}) uses {} and field '{}' ({}) uses {}", a.field, to_string(a.access),
                         describe_range(plan_, a.buffer, a.offset, a.bytes), b.field, to_string(b.access),
                         describe_range(plan_, b.buffer, b.offset, b.bytes)),
             "give each field memory of its own, or use one InOut field");
    }
}

void GraphBuilder::check_initialised(const PlanNode& node) const {
  for (const Use& use : node.uses) {
    const Buffer& buffer = plan_.buffers[use.buffer];
    if (!reads(use.access) || buffer.live_in) continue;
    const ByteRange range = address_range(use);
    const auto hole = hazards_.first_unwritten(range.address, range.bytes);
    if (!hole) continue;
    const uint64_t offset = hole->address - buffer.range.address;
    refuse(node,
           fmt::format("field '{}' reads {}, and no earlier node writes {}", use.field,
                       describe_range(plan_, use.buffer, use.offset, use.bytes),
                       describe_range(plan_, use.buffer, offset, hole->bytes)),
           "write it first, or declare the buffer live-in");
  }
}

// A frozen range may be read before the wait, where no edge protects it: so no node of the plan may write it, be it
// earlier or later.
void GraphBuilder::check_frozen(const PlanNode& node) const {
  for (const Use& use : node.uses) {
    const ByteRange range = address_range(use);
    const std::string text = describe_range(plan_, use.buffer, use.offset, use.bytes);
    if (use.access == Access::frozen) {
      if (const auto written = hazards_.first_written(range.address, range.bytes))
        refuse(node,
               fmt::format("field '{}' declares {} frozen, and node '{}' writes there", use.field, text,
                           plan_.nodes[written->node].name),
               "make the field In");
    } else if (writes(use.access)) {
      if (const auto reader = frozen_reads_.first_reader(range.address, range.bytes))
        refuse(node,
               fmt::format("field '{}' writes {}, which node '{}' declares frozen", use.field, text,
                           plan_.nodes[*reader].name),
               "make the reader's field In");
    }
  }
}

ByteRange GraphBuilder::address_range(const Use& use) const {
  return {plan_.buffers[use.buffer].range.address + use.offset, use.bytes};
}

void GraphBuilder::refuse(const PlanNode& node, std::string detail, std::string advice) const {
  throw Error({.doing = "add node",
               .object = node.name,
               .detail = fmt::format("in plan '{}': {}", plan_.name, detail),
               .advice = std::move(advice)});
}

// Which edges are needed, and why fewer than the candidates are enough.
//
// Let "A before B" mean: A has completed, and its writes are visible, before B touches any memory that is not frozen,
// and so before B completes. Frozen memory is written by no node of the plan (check_frozen), so it needs no order.
//   - A full edge A -> B gives it: B starts after A has completed.
//   - A programmatic edge A -> B gives it when B waits unconditionally on every path: B may start early, but touches
//     only frozen memory until its wait returns, and the wait returns after A has completed. No block of B completes
//     without having waited, so B's completion still implies A's. A kernel that does not wait would break both halves;
//     it gets full edges only, whatever its neighbours do, and so do copies, fills and empty nodes.
// Both give "B's completion implies A's", therefore "before" is transitive along paths of any mixture of the two types:
// if A -> B and B -> C are edges, A has completed before B completes, and B before C touches anything. So the edge
// A -> C is implied by any other path from A to C, and dropping it, whatever its type, loses no order. (It would, if B
// could finish without waiting: then B's completion would say nothing about A. That is the case excluded above.)
//
// Candidates point from a smaller id to a larger one, so the graph has no cycle and its transitive reduction is unique:
// keep A -> C exactly when no other candidate of C has A among its ancestors. Taking the candidates of C from the
// largest id down, an ancestor's descendants are always seen before it.
std::vector<Edge> GraphBuilder::derived_edges(bool programmatic) const {
  Reachability before(plan_.nodes.size());
  std::vector<Edge> edges;
  for (const PlanNode& node : plan_.nodes) {
    const std::vector<Candidate>& candidates = candidates_[node.id];
    const size_t first = edges.size();
    for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate) {
      if (before.ordered(candidate->from, node.id)) continue;
      before.add(candidate->from, node.id);
      const bool early = programmatic && plan_.nodes[candidate->from].kind == NodeKind::kernel &&
                         node.kind == NodeKind::kernel && node.waits_for_inputs;
      edges.push_back({candidate->from, node.id, early ? EdgeType::programmatic : EdgeType::full, candidate->reasons});
    }
    std::reverse(edges.begin() + static_cast<std::ptrdiff_t>(first), edges.end());
  }
  return edges;
}

std::vector<Edge> GraphBuilder::serial_edges() const {
  std::vector<Edge> edges;
  for (uint32_t to = 1; to < plan_.nodes.size(); ++to) {
    Edge edge{to - 1, to, EdgeType::full, {Reason{.hazard = Hazard::serial}}};
    for (const Candidate& candidate : candidates_[to])
      if (candidate.from == edge.from) edge.reasons = candidate.reasons;
    edges.push_back(std::move(edge));
  }
  return edges;
}

Plan GraphBuilder::finish(EdgePolicy policy) && {
  const bool device_allows = plan_.device->properties().cc_major >= kProgrammaticMajor;
  plan_.edges = policy == EdgePolicy::serial ? serial_edges()
                                             : derived_edges(policy == EdgePolicy::programmatic && device_allows);
  check_plan(plan_);
  const std::vector<MissingOrder> missing = missing_orders(plan_);
  if (!missing.empty())
    throw Error({.doing = "finish plan",
                 .object = plan_.name,
                 .detail = fmt::format("{} orders are missing, the first: {}", missing.size(), describe(missing[0])),
                 .advice = "report this: the edges and the check disagree"});
  return std::move(plan_);
}

}  // namespace nodewright
