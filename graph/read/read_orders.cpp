#include "graph/read/read_orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "graph/hazard_check.h"
#include "graph/read/read_graph.h"

namespace nodewright {
namespace {

// Uses of one node by their place, and how far those up to each one reach.
struct SortedUses {
  std::vector<const Use*> uses;
  std::vector<std::pair<uint32_t, uint64_t>> reach;  // buffer and end

  explicit SortedUses(const PlanNode& node) {
    for (const Use& use : node.uses) uses.push_back(&use);
    std::ranges::sort(uses, {}, [](const Use* use) { return std::tuple(use->buffer, use->offset); });
    for (const Use* use : uses) {
      const std::pair end(use->buffer, use->offset + use->bytes);
      reach.push_back(reach.empty() ? end : std::max(reach.back(), end));
    }
  }
};

std::optional<Hazard> hazard_between(Access earlier, Access later) {
  if (writes(earlier)) return reads(later) ? Hazard::raw : Hazard::waw;
  if (writes(later)) return Hazard::war;
  return std::nullopt;
}

void add_reasons(const SortedUses& earlier, const SortedUses& later, std::pmr::vector<Reason>& reasons) {
  for (const Use* use : later.uses) {
    const auto first = std::ranges::upper_bound(earlier.reach, std::pair(use->buffer, use->offset));
    for (auto i = static_cast<size_t>(first - earlier.reach.begin()); i < earlier.uses.size(); ++i) {
      const Use& other = *earlier.uses[i];
      if (other.buffer != use->buffer || other.offset >= use->offset + use->bytes) break;
      const uint64_t begin = std::max(other.offset, use->offset),
                     end = std::min(other.offset + other.bytes, use->offset + use->bytes);
      const auto hazard = hazard_between(other.access, use->access);
      if (hazard && begin < end) reasons.push_back({*hazard, use->buffer, begin, end - begin});
    }
  }
}

}  // namespace

void find_reasons(Plan& plan) {
  std::vector<std::optional<SortedUses>> sorted(plan.nodes.size());
  const auto uses_of = [&](uint32_t id) -> const SortedUses& {
    return sorted[id] ? *sorted[id] : sorted[id].emplace(plan.nodes[id]);
  };
  for (Edge& edge : plan.edges) {
    std::pmr::vector<Reason> reasons;
    add_reasons(uses_of(edge.from), uses_of(edge.to), reasons);
    if (!reasons.empty()) edge.reasons = std::move(reasons);
  }
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies) find_reasons(const_cast<Plan&>(*body));  // which read_graph is making
}

std::vector<uint32_t> edges_to_relax(const Plan& plan) {
  std::vector<uint32_t> edges;
  if (plan.device != nullptr && !plan.device->properties().has_programmatic_launch()) return edges;
  for (uint32_t i = 0; i < plan.edges.size(); ++i) {
    const Edge& edge = plan.edges[i];
    const PlanNode &from = plan.nodes[edge.from], &to = plan.nodes[edge.to];
    if (edge.type == EdgeType::full && from.kind == NodeKind::kernel && to.waits_for_inputs &&
        std::ranges::none_of(to.uses, &Use::settled))
      edges.push_back(i);
  }
  return edges;
}

std::string order_report(const Plan& plan) {
  std::string report;
  for (const MissingOrder& missing : missing_orders(plan)) report += "missing: " + describe(missing) + "\n";
  for (const uint32_t i : edges_to_relax(plan))
    report += fmt::format("could be programmatic: {} -> {}\n", plan.nodes[plan.edges[i].from].name,
                          plan.nodes[plan.edges[i].to].name);
  return report;
}

}  // namespace nodewright
