#include "graph/edges/buffer_lifetimes.h"

#include <algorithm>

namespace nodewright {

std::vector<std::optional<Lifetime>> buffer_lifetimes(const Plan& plan) {
  std::vector<std::optional<Lifetime>> lifetimes(plan.buffers.size());
  if (plan.nodes.empty()) return lifetimes;
  const auto needs = [&](uint32_t buffer, uint32_t node) {
    std::optional<Lifetime>& lifetime = lifetimes[buffer];
    if (!lifetime) lifetime = Lifetime{node, node};
    lifetime->first = std::min(lifetime->first, node);
    lifetime->last = std::max(lifetime->last, node);
  };
  for (const PlanNode& node : plan.nodes)
    for (const Use& use : node.uses) needs(use.buffer, node.id);
  for (uint32_t id = 0; id < plan.buffers.size(); ++id) {
    if (plan.buffers[id].live_in) needs(id, 0);
    if (plan.buffers[id].live_out) needs(id, plan.nodes.back().id);
  }
  return lifetimes;
}

MemoryPeak memory_peak(const Plan& plan) {
  const std::vector<std::optional<Lifetime>> lifetimes = buffer_lifetimes(plan);
  std::vector<uint64_t> begin(plan.nodes.size(), 0), end(plan.nodes.size(), 0);  // bytes, by node
  for (uint32_t id = 0; id < plan.buffers.size(); ++id) {
    const NamedRange& range = plan.buffers[id].range;
    if (!lifetimes[id] || range.address >= kConditionBase) continue;
    begin[lifetimes[id]->first] += range.bytes;
    end[lifetimes[id]->last] += range.bytes;
  }
  MemoryPeak peak;
  uint64_t held = 0;
  for (uint32_t node = 0; node < plan.nodes.size(); ++node) {
    held += begin[node];
    if (held > peak.bytes) peak = {held, node};
    held -= end[node];
  }
  return peak;
}

}  // namespace nodewright
