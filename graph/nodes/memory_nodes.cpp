// GraphBuilder::allocate and free: memory that lives inside one launch, and who may touch it when.
#include <fmt/format.h>

#include <algorithm>

#include "graph/builder_state.h"

namespace nodewright {
namespace {

constexpr uint64_t kPlanBytes = uint64_t{1} << 40;  // of addresses, for all that a plan allocates
// Gaps keep a view beyond the end of one allocation out of the next. More than the 256 bytes that cuMemAlloc aligns to.
constexpr uint64_t kGap = 4096;

uint64_t plan_base(std::string_view plan_name) {
  return kAllocationBase + (name_hash(plan_name) & 0xffff) * kPlanBytes;
}

}  // namespace

Allocation GraphBuilder::allocate(std::string_view name, uint64_t bytes, const NodeOptions& options) {
  PlanNode node = state_->new_node(name, NodeKind::allocate);
  if (!state_->plan_.device->properties().memory_pools)
    state_->refuse(node, "the device has no memory pools", "allocate a DeviceBuffer beforehand");
  if (bytes == 0) state_->refuse(node, "0 bytes to allocate", "allocate at least one byte");
  const uint64_t room = kPlanBytes - state_->allocated_bytes_;
  if (bytes > room || room - bytes < 2 * kGap)
    state_->refuse(node, fmt::format("{} bytes, and the plan allocates {} already", bytes, state_->allocated_bytes_),
                   "allocate less than 1 TiB in a plan");
  Allocation allocation;
  allocation.name = node.name;
  allocation.address = plan_base(state_->plan_.name) + state_->allocated_bytes_;
  allocation.bytes = bytes;
  allocation.scope_chars = state_->prefix_.size();
  state_->declare(allocation.range());
  state_->allocated_bytes_ += (bytes / kGap + 2) * kGap;
  node.allocated = allocation.address;
  const AddressedUse use{"memory", allocation.address, bytes, Access::out, 1};
  static_cast<NodeId&>(allocation) = state_->add(std::move(node), {&use, 1}, options, Traffic{});
  return allocation;
}

void GraphBuilder::State::declare_unallocated(const Buffer& buffer) {
  const NamedRange& range = buffer.range;
  declare(range, {buffer.live_in, buffer.live_out, buffer.peer});
  buffer_states_.back().unallocated = true;
  const uint64_t offset = range.address - plan_base(plan_.name);
  allocated_bytes_ = std::max(allocated_bytes_, offset + (range.bytes / kGap + 2) * kGap);
}

NodeId GraphBuilder::free(const Allocation& allocation, const NodeOptions& options) {
  PlanNode node = state_->new_node(
      allocation.name.substr(std::min(allocation.scope_chars, allocation.name.size())) + ".free", NodeKind::free);
  if (allocation.plan != state_->plan_.id || allocation.index >= state_->plan_.nodes.size() ||
      state_->plan_.nodes[allocation.index].kind != NodeKind::allocate)
    state_->refuse(node, fmt::format("'{}' is no memory that plan '{}' allocates", allocation.name, state_->plan_.name),
                   "free what allocate() of this builder returned");
  node.allocated = allocation.address;
  const AddressedUse use{"memory", allocation.address, allocation.bytes, Access::out, 1};
  const NodeId id = state_->add(std::move(node), {&use, 1}, options, Traffic{});
  state_->buffer_states_[state_->plan_.nodes[id.index].uses[0].buffer].freed_by = id.index;
  return id;
}

// Memory that the plan allocates is used after its allocation, since nothing has its address before, and not after
// its free. Who keeps an address of his own cannot be told where the memory is.
void GraphBuilder::State::check_allocated(const PlanNode& node) const {
  for (const Use& use : node.uses) {
    const Buffer& buffer = plan_.buffers[use.buffer];
    if (!is_allocated(buffer.range.address)) continue;
    if (buffer_states_[use.buffer].unallocated && node.kind != NodeKind::allocate)
      refuse(node,
             fmt::format("field '{}' uses {}, before its node allocates it", use.field,
                         describe_range(plan_, use.buffer, use.offset, use.bytes)),
             "insert the node after the one that allocates");
    if (const uint32_t free = buffer_states_[use.buffer].freed_by; free != kNone)
      refuse(node,
             fmt::format("field '{}' uses {}, which node '{}' has freed", use.field,
                         describe_range(plan_, use.buffer, use.offset, use.bytes), plan_.nodes[free].name),
             node.kind == NodeKind::free ? "free each allocation once" : "free the memory after its last use");
    const bool pointer_inside =
        node.kind == NodeKind::kernel &&
        std::none_of(node.fields.begin(), node.fields.end(), [&](const FieldInfo& f) { return f.name == use.field; });
    if (pointer_inside || node.kind == NodeKind::library)
      refuse(node,
             fmt::format("field '{}' uses {}, whose address is known when a graph is built, and {} keeps its own",
                         use.field, describe_range(plan_, use.buffer, use.offset, use.bytes),
                         pointer_inside ? "a struct that holds pointers" : "a library's call"),
             "pass it memory of a DeviceBuffer");
  }
}

void GraphBuilder::State::check_all_freed() const {
  for (const PlanNode& node : plan_.nodes) {
    if (node.kind != NodeKind::allocate) continue;
    const uint32_t buffer = node.uses[0].buffer, freed_by = buffer_states_[buffer].freed_by;
    const bool left = plan_.buffers[buffer].live_out;
    if (left && freed_by != kNone)
      throw Error({.doing = "finish plan",
                   .object = plan_.name,
                   .detail = fmt::format("the memory of node '{}' is declared live-out, and node '{}' frees it",
                                         node.name, plan_.nodes[freed_by].name),
                   .advice = "free it, or leave it allocated until the next launch"});
    if (!left && freed_by == kNone)
      throw Error(
          {.doing = "finish plan",
           .object = plan_.name,
           .detail = fmt::format("no node frees the memory of node '{}': the driver refuses the second launch of "
                                 "a graph that leaves memory allocated",
                                 node.name),
           .advice = "free it after its last use, or use a DeviceBuffer where it is to stay; or declare it live-out "
                     "and build "
                     "the graph with InstantiateOptions::auto_free_on_launch"});
  }
}

}  // namespace nodewright
