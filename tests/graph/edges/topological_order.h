// The same plan with its nodes in another order that its edges allow, in the plans inside too.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/node.h"

namespace nodewright {

inline Plan reordered(const Plan& plan, std::mt19937& random) {
  std::vector<uint32_t> waiting_for(plan.nodes.size(), 0), ready, position(plan.nodes.size());
  for (const Edge& edge : plan.edges) ++waiting_for[edge.to];
  for (uint32_t id = 0; id < plan.nodes.size(); ++id)
    if (waiting_for[id] == 0) ready.push_back(id);
  Plan result = plan;
  result.nodes.clear();
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const uint32_t id = ready.back();
    ready.pop_back();
    position[id] = static_cast<uint32_t>(result.nodes.size());
    PlanNode& node = result.nodes.emplace_back(plan.nodes[id]);
    node.id = position[id];
    for (auto& body : node.bodies) body = std::make_shared<const Plan>(reordered(*body, random));
    for (const Edge& edge : plan.edges)
      if (edge.from == id && --waiting_for[edge.to] == 0) ready.push_back(edge.to);
  }
  for (Edge& edge : result.edges) {
    edge.from = position[edge.from];
    edge.to = position[edge.to];
  }
  std::sort(result.edges.begin(), result.edges.end(),
            [](const Edge& a, const Edge& b) { return std::tie(a.to, a.from) < std::tie(b.to, b.from); });
  return result;
}

}  // namespace nodewright
