#include "graph/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "graph/dump/name_table.h"

namespace nodewright {

std::string_view to_string(Access access) {
  switch (access) {
    case Access::frozen:
      return "frozen";
    case Access::in:
      return "in";
    case Access::out:
      return "out";
    case Access::inout:
      return "inout";
  }
  return "?";
}

std::string_view to_string(NodeKind kind) {
  switch (kind) {
    case NodeKind::kernel:
      return "kernel";
    case NodeKind::memcpy:
      return "memcpy";
    case NodeKind::memset:
      return "memset";
    case NodeKind::host:
      return "host";
    case NodeKind::empty:
      return "empty";
    case NodeKind::child:
      return "child";
    case NodeKind::event_record:
      return "event record";
    case NodeKind::event_wait:
      return "event wait";
    case NodeKind::conditional:
      return "conditional";
    case NodeKind::library:
      return "library";
    case NodeKind::allocate:
      return "allocate";
    case NodeKind::free:
      return "free";
    case NodeKind::values:
      return "values";
    case NodeKind::semaphore_signal:
      return "semaphore signal";
    case NodeKind::semaphore_wait:
      return "semaphore wait";
    case NodeKind::other:
      return "other";
  }
  return "?";
}

std::string_view to_string(EdgeType type) {
  switch (type) {
    case EdgeType::full:
      return "full";
    case EdgeType::programmatic:
      return "programmatic";
    case EdgeType::other:
      return "other";
  }
  return "?";
}

std::string_view to_string(Hazard hazard) {
  switch (hazard) {
    case Hazard::raw:
      return "RAW";
    case Hazard::war:
      return "WAR";
    case Hazard::waw:
      return "WAW";
    case Hazard::declared:
      return "declared";
    case Hazard::serial:
      return "serial";
  }
  return "?";
}

std::string_view to_string(ConditionalKind kind) {
  switch (kind) {
    case ConditionalKind::if_:
      return "if";
    case ConditionalKind::while_:
      return "while";
    case ConditionalKind::switch_:
      return "switch";
  }
  return "?";
}

bool loops(const PlanNode& node) {
  if (node.kind == NodeKind::conditional && node.conditional == ConditionalKind::while_) return true;
  return std::any_of(node.bodies.begin(), node.bodies.end(), [](const std::shared_ptr<const Plan>& body) {
    return std::any_of(body->nodes.begin(), body->nodes.end(), loops);
  });
}

uint32_t name_hash(std::string_view plan_name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, 64 bits
  for (const char c : plan_name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return static_cast<uint32_t>(hash);
}

uint64_t conditions_address(std::string_view plan_name) {
  return kConditionBase + (uint64_t{name_hash(plan_name)} << 16);
}

// The last of the addresses that the plan's conditions may take.
uint64_t loops_address(std::string_view plan_name) { return conditions_address(plan_name) + 0xfff8; }

std::string body_name(ConditionalKind kind, size_t index) {
  switch (kind) {
    case ConditionalKind::if_:
      return index == 0 ? "then" : "else";
    case ConditionalKind::while_:
      return "body";
    case ConditionalKind::switch_:
      break;
  }
  return fmt::format("case {}", index);
}

std::string describe_range(const Plan& plan, uint32_t buffer, uint64_t offset, uint64_t bytes) {
  return fmt::format("{}[{},{})", plan.buffers.at(buffer).range.name, offset, offset + bytes);
}

std::string describe(const Plan& plan, const Reason& reason) {
  std::string text(to_string(reason.hazard));
  if (reason.hazard == Hazard::declared || reason.hazard == Hazard::serial) return text;
  return text + " " + describe_range(plan, reason.buffer, reason.offset, reason.bytes);
}

namespace {

[[noreturn]] void refuse_plan(const Plan& plan, std::string detail) {
  throw Error({.doing = "use plan",
               .object = plan.name,
               .detail = std::move(detail),
               .advice = "take the plan as GraphBuilder::finish returned it"});
}

void check_plan_inside(const Plan& plan, const Plan& outermost, std::unordered_set<std::string_view>& plan_names);

void check_nodes(const Plan& plan, const Plan& outermost, std::unordered_set<std::string_view>& plan_names) {
  NameTable names;
  const auto name_of = [&](uint32_t id) -> std::string_view { return plan.nodes[id].name; };
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    if (node.id != i) refuse_plan(plan, fmt::format("node {} has id {}", i, node.id));
    const uint32_t hash = NameTable::hash_of(node.name);
    if (names.find(hash, node.name, name_of) != NameTable::kNone)
      refuse_plan(plan, fmt::format("two nodes are named '{}'", node.name));
    names.insert(hash, node.id);
    if (node.kind == NodeKind::kernel && node.kernel == nullptr)
      refuse_plan(plan, fmt::format("node '{}' has no kernel", node.name));
    if (node.kind == NodeKind::library && node.library == nullptr)
      refuse_plan(plan, fmt::format("node '{}' has no library call", node.name));
    for (const Use& use : node.uses)
      if (use.buffer >= plan.buffers.size())
        refuse_plan(plan, fmt::format("node '{}', field '{}' names buffer {} of {}", node.name, use.field, use.buffer,
                                      plan.buffers.size()));
    const bool holds_memory = node.kind == NodeKind::allocate || node.kind == NodeKind::free;
    if (holds_memory && (node.uses.size() != 1 || !is_allocated(node.allocated)))
      refuse_plan(plan, fmt::format("node '{}' is of kind {} and names no memory of the plan's own", node.name,
                                    to_string(node.kind)));
    const bool nested = node.kind == NodeKind::child || node.kind == NodeKind::conditional;
    if (nested == node.bodies.empty())
      refuse_plan(plan, fmt::format("node '{}' is of kind {} and has {} bodies", node.name, to_string(node.kind),
                                    node.bodies.size()));
    for (const auto& body : node.bodies) check_plan_inside(*body, outermost, plan_names);
  }
}

void check_edges(const Plan& plan) {
  const Edge* before = nullptr;
  for (const Edge& edge : plan.edges) {
    if (edge.from >= plan.nodes.size() || edge.to >= plan.nodes.size())
      refuse_plan(plan, fmt::format("an edge goes from node {} to node {}, and there are {} nodes", edge.from, edge.to,
                                    plan.nodes.size()));
    const PlanNode &from = plan.nodes[edge.from], &to = plan.nodes[edge.to];
    if (edge.from >= edge.to)
      refuse_plan(plan, fmt::format("the edge from '{}' ({}) to '{}' ({}) goes backwards, so there may be a cycle",
                                    from.name, edge.from, to.name, edge.to));
    if (before != nullptr && before->to == edge.to && before->from == edge.from)
      refuse_plan(plan, fmt::format("two edges go from '{}' to '{}'", from.name, to.name));
    if (before != nullptr && std::tie(before->to, before->from) > std::tie(edge.to, edge.from))
      refuse_plan(plan, fmt::format("the edge from '{}' to '{}' is out of order", from.name, to.name));
    if (edge.type == EdgeType::programmatic && (from.kind != NodeKind::kernel || !to.waits_for_inputs))
      refuse_plan(plan, fmt::format("the programmatic edge from '{}' to '{}' needs a kernel before and a kernel that "
                                    "waits after",
                                    from.name, to.name));
    before = &edge;
  }
  for (const DeclaredOrder& order : plan.after)
    if (order.earlier >= order.node || order.node >= plan.nodes.size())
      refuse_plan(plan, fmt::format("node {} is to follow node {}, and there are {} nodes", order.node, order.earlier,
                                    plan.nodes.size()));
}

// Patches find a node by its plan's name.
void check_plan_inside(const Plan& plan, const Plan& outermost, std::unordered_set<std::string_view>& plan_names) {
  if (plan.device == nullptr) refuse_plan(plan, "it has no device");
  if (plan.read != nullptr)
    throw Error({.doing = "use plan",
                 .object = plan.name,
                 .detail = "it was read from a graph that was built elsewhere, and such a plan does not run",
                 .advice = "launch that graph itself, or put it into a plan with GraphBuilder::graph"});
  if (!plan_names.insert(plan.name).second)
    refuse_plan(outermost, fmt::format("two plans in it are named '{}'", plan.name));
  check_nodes(plan, outermost, plan_names);
  check_edges(plan);
}

}  // namespace

void check_plan(const Plan& plan) {
  std::unordered_set<std::string_view> names;
  check_plan_inside(plan, plan, names);
}

}  // namespace nodewright
