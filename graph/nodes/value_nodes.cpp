// GraphBuilder's nodes that meet the outside by a value: batched memory operations and external semaphores.
#include <fmt/format.h>

#include <algorithm>

#include "graph/builder_state.h"
#include "graph/edges/touched_ranges.h"

namespace nodewright {
namespace {

constexpr size_t kMostOperations = 255;  // cuStreamBatchMemOp in cuda.h: "must be less than 256"

bool any_of(const std::vector<ValueOperation>& operations, bool (*matches)(const ValueOperation&)) {
  return std::any_of(operations.begin(), operations.end(), matches);
}

std::string_view sign(Until until) {
  switch (until) {
    case Until::at_least:
      return ">=";
    case Until::equal:
      return "==";
    case Until::any_bit:
      return "&";
    case Until::any_zero:
      return "nor";
  }
  return "?";
}

}  // namespace

std::string describe(const ValueOperation& operation) {
  return fmt::format("{} bits {} {:#x}", 8 * operation.bytes,
                     operation.waits ? sign(operation.until) : ":=", operation.value);
}

ValueNode GraphBuilder::values(std::string_view name, const std::vector<ValueOperation>& operations,
                               const std::vector<DeclaredUse>& uses, const NodeOptions& options) {
  PlanNode node = state_->new_node(name, NodeKind::values);
  if (operations.empty() || operations.size() > kMostOperations)
    state_->refuse(node, fmt::format("{} operations, and a node holds 1 to {}", operations.size(), kMostOperations),
                   "split the operations among nodes");
  const DeviceProperties& properties = state_->plan_.device->properties();
  for (const ValueOperation& operation : operations) {
    const bool nor = operation.waits && operation.until == Until::any_zero;
    if ((operation.bytes == 8 && !properties.wide_values) || (nor && !properties.waits_for_zeros))
      state_->refuse(node, fmt::format("the device does not do '{}'", describe(operation)),
                     "use 32 bits and another comparison");
  }
  std::vector<AddressedUse> addressed;
  for (const WordUse& use : word_uses(operations)) {
    const std::string field = addressed.empty() ? "value" : fmt::format("value {}", addressed.size());
    // On an H100 (driver 580.159.04, 2026-11-25) the launch ends in CUDA_ERROR_INVALID_VALUE: 60 of 60 such plans.
    if (is_allocated(use.address))
      state_->refuse(
          node, fmt::format("'{}' lies in memory that the plan allocates, where the driver takes no values", field),
          "use a word of a DeviceBuffer or of a PinnedBuffer");
    addressed.push_back(
        state_->declared_use(node, {field, CopyEnd(use.address, use.bytes, false), use.access(), use.bytes}, 0));
  }
  const bool waits = any_of(operations, [](const ValueOperation& operation) { return operation.waits; });
  const bool writes = any_of(operations, [](const ValueOperation& operation) { return !operation.waits; });
  state_->add_met_uses(node, uses, waits, writes, addressed);
  node.values = operations;
  return {state_->add(std::move(node), addressed, options, Traffic{})};
}

NodeId GraphBuilder::signal_semaphore(std::string_view name, CUexternalSemaphore semaphore, uint64_t value,
                                      const std::vector<DeclaredUse>& uses, const NodeOptions& options) {
  return state_->add_semaphore(name, NodeKind::semaphore_signal, semaphore, value, uses, options);
}

NodeId GraphBuilder::wait_semaphore(std::string_view name, CUexternalSemaphore semaphore, uint64_t value,
                                    const std::vector<DeclaredUse>& uses, const NodeOptions& options) {
  return state_->add_semaphore(name, NodeKind::semaphore_wait, semaphore, value, uses, options);
}

NodeId GraphBuilder::State::add_semaphore(std::string_view name, NodeKind kind, CUexternalSemaphore semaphore,
                                          uint64_t value, const std::vector<DeclaredUse>& uses,
                                          const NodeOptions& options) {
  PlanNode node = new_node(name, kind);
  if (semaphore == nullptr) refuse(node, "it has no semaphore", "pass what cuImportExternalSemaphore returned");
  node.semaphore = {semaphore, value};
  std::vector<AddressedUse> addressed;
  add_met_uses(node, uses, kind == NodeKind::semaphore_wait, kind == NodeKind::semaphore_signal, addressed);
  return add(std::move(node), addressed, options, Traffic{});
}

// The ranges that a node announces to others (in) or that others have written before it goes on (out).
void GraphBuilder::State::add_met_uses(const PlanNode& node, const std::vector<DeclaredUse>& uses, bool waits,
                                       bool announces, std::vector<AddressedUse>& addressed) const {
  for (const DeclaredUse& use : uses) {
    addressed.push_back(declared_use(node, use, addressed.size()));
    if ((use.access == Access::in && announces) || (use.access == Access::out && waits)) continue;
    refuse(
        node,
        fmt::format("'{}' is declared {}, and this node's ranges are {}", addressed.back().field, to_string(use.access),
                    waits && announces ? "in or out"
                    : waits            ? to_string(Access::out)
                                       : to_string(Access::in)),
        "declare in what the node announces and out what others wrote before it goes on");
  }
}

}  // namespace nodewright
