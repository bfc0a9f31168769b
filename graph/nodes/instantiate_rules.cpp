#include "graph/nodes/instantiate_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "graph/nodes/left_memory.h"
#include "runtime/context_guard.h"
#include "runtime/device.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_options(const Plan& plan, std::string detail, std::string advice) {
  throw Error(
      {.doing = "instantiate graph", .object = plan.name, .detail = std::move(detail), .advice = std::move(advice)});
}

bool launchable_from_device(const PlanNode& node) {
  switch (node.kind) {
    case NodeKind::kernel:
    case NodeKind::memset:
    case NodeKind::child:
      return true;
    case NodeKind::memcpy:
      return !node.copy.touches_array();
    case NodeKind::library:
      return node.host == nullptr;  // a stand-in is a host function
    default:
      return false;
  }
}

std::string unlaunchable_words(const PlanNode& node) {
  if (node.kind == NodeKind::memcpy) return "a copy to or from an array";
  return fmt::format("of kind {}{}", to_string(node.kind), node.kind == NodeKind::library ? " with a stand-in" : "");
}

// The first node, in this plan or in a child, that a graph which kernels launch cannot have.
const PlanNode* first_unlaunchable(const Plan& plan, const Plan*& where) {
  for (const PlanNode& node : plan.nodes) {
    where = &plan;
    if (!launchable_from_device(node)) return &node;
    for (const auto& body : node.bodies)
      if (const PlanNode* inside = first_unlaunchable(*body, where)) return inside;
  }
  return nullptr;
}

bool does_something(const Plan& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& node) {
    return node.kind != NodeKind::child || does_something(*node.bodies[0]);
  });
}

}  // namespace

void check_device_launch(const Plan& plan) {
  const Plan* where = &plan;
  if (const PlanNode* node = first_unlaunchable(plan, where))
    refuse_options(plan,
                   fmt::format("node '{}' of plan '{}' is {}, and a graph that kernels launch has kernels, copies of "
                               "memory, fills and children alone",
                               node->name, where->name, unlaunchable_words(*node)),
                   "move the node to a plan that the host launches");
  if (!does_something(plan))
    refuse_options(plan, "it has no kernel, copy or fill, and a graph that kernels launch has at least one",
                   "add one, or leave out InstantiateOptions::device_launch");
}

const PlanNode* first_left_allocated(const Plan& plan) {
  const auto left = std::ranges::find_if(plan.nodes, [&](const PlanNode& node) {
    return node.kind == NodeKind::allocate && plan.buffers[node.uses[0].buffer].live_out;
  });
  return left == plan.nodes.end() ? nullptr : &*left;
}

void refuse_left_memory(const Plan& plan, std::string_view doing) {
  if (const PlanNode* node = first_left_allocated(plan))
    throw Error({.doing = std::string(doing),
                 .object = plan.name,
                 .detail = fmt::format("no node frees the memory of node '{}', which is declared live-out", node->name),
                 .advice = "build an ExplicitGraph with InstantiateOptions::auto_free_on_launch, or free the memory"});
}

void check_options(const Plan& plan, const InstantiateOptions& options) {
  if (options.auto_free_on_launch && options.device_launch)
    refuse_options(plan, "auto_free_on_launch and device_launch exclude each other", "choose one of them");
  if (!options.auto_free_on_launch) refuse_left_memory(plan, "instantiate graph");
  if (!options.device_launch) return;
  check_device_launch(plan);
  if (plan.device->driver().is_cpu())
    refuse_options(plan, "kernels launch no graphs on the CPU driver",
                   "leave out InstantiateOptions::device_launch there");
}

void LeftMemory::free() noexcept {
  if (!launched_ || addresses_.empty()) return;
  try {
    const ContextGuard current(*device_);
    device_->synchronize();
    for (const CUdeviceptr address : addresses_) device_->driver().cuMemFree(address);
  } catch (const Error&) {  // what went wrong is reported where the stream is waited for
  }
}

cuuint64_t flags_of(const InstantiateOptions& options) {
  return (options.auto_free_on_launch ? CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH : 0) |
         (options.device_launch ? CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH : 0) |
         (options.upload != nullptr ? CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD : 0);
}

}  // namespace nodewright
