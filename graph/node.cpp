#include "graph/node.h"

#include <fmt/format.h>

#include <set>
#include <utility>

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
    case NodeKind::empty:
      return "empty";
  }
  return "?";
}

std::string_view to_string(EdgeType type) { return type == EdgeType::full ? "full" : "programmatic"; }

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

std::string describe_range(const Plan& plan, uint32_t buffer, uint64_t offset, uint64_t bytes) {
  return fmt::format("{}[{},{})", plan.buffers.at(buffer).range.name, offset, offset + bytes);
}

std::string describe(const Plan& plan, const Reason& reason) {
  std::string text(to_string(reason.hazard));
  if (reason.hazard == Hazard::declared || reason.hazard == Hazard::serial) return text;
  return text + " " + describe_range(plan, reason.buffer, reason.offset, reason.bytes);
}

uint64_t plan_token(std::string_view plan_name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, 64 bits
  for (const char c : plan_name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

void check_plan(const Plan& plan) {
  const auto refuse = [&](std::string detail) {
    throw Error({.doing = "use plan",
                 .object = plan.name,
                 .detail = std::move(detail),
                 .advice = "take the plan as GraphBuilder::finish returned it"});
  };
  if (plan.device == nullptr) refuse("it has no device");
  std::set<std::string_view> names;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    if (node.id != i) refuse(fmt::format("node {} has id {}", i, node.id));
    if (!names.insert(node.name).second) refuse(fmt::format("two nodes are named '{}'", node.name));
    if (node.kind == NodeKind::kernel && node.kernel == nullptr)
      refuse(fmt::format("node '{}' has no kernel", node.name));
    for (const Use& use : node.uses)
      if (use.buffer >= plan.buffers.size())
        refuse(fmt::format("node '{}', field '{}' names buffer {} of {}", node.name, use.field, use.buffer,
                           plan.buffers.size()));
  }
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const Edge& edge : plan.edges) {
    if (edge.from >= plan.nodes.size() || edge.to >= plan.nodes.size())
      refuse(fmt::format("an edge goes from node {} to node {}, and there are {} nodes", edge.from, edge.to,
                         plan.nodes.size()));
    const std::string& from = plan.nodes[edge.from].name;
    const std::string& to = plan.nodes[edge.to].name;
    if (edge.from >= edge.to)
      refuse(fmt::format("the edge from '{}' ({}) to '{}' ({}) goes backwards, so there may be a cycle", from,
                         edge.from, to, edge.to));
    if (!seen.insert({edge.from, edge.to}).second) refuse(fmt::format("two edges go from '{}' to '{}'", from, to));
    if (edge.type == EdgeType::programmatic &&
        (plan.nodes[edge.from].kind != NodeKind::kernel || !plan.nodes[edge.to].waits_for_inputs))
      refuse(fmt::format("the programmatic edge from '{}' to '{}' needs a kernel before and a kernel that waits after",
                         from, to));
  }
}

}  // namespace nodewright
