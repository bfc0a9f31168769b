#include "bench/graph/driver_graph.h"

#include <vector>

#include "graph/nodes/node_parameters.h"
#include "runtime/context_guard.h"
#include "runtime/device.h"

namespace nodewright {

GraphHandle graph_by_driver(const Plan& plan) {
  const ContextGuard current(*plan.device);
  const Driver& driver = plan.device->driver();
  CUgraph created = nullptr;
  driver.check(driver.cuGraphCreate(&created, 0), "cuGraphCreate", "create graph", plan.name);
  GraphHandle graph(driver, created);
  const AllocatedMemory no_memory(plan.name);
  KeptParameters kept;
  std::vector<CUgraphNode> added(plan.nodes.size()), earlier;
  std::vector<CUgraphEdgeData> data;
  auto edge = plan.edges.begin();
  for (const PlanNode& node : plan.nodes) {
    earlier.clear();
    data.clear();
    for (; edge != plan.edges.end() && edge->to == node.id; ++edge) {
      earlier.push_back(added[edge->from]);
      data.push_back(edge_data(edge->type));
    }
    ParameterPointers pointers(node);
    CUgraphNodeParams parameters = graph_node_parameters(node, *plan.device, pointers.get(), no_memory, kept);
    driver.check(
        driver.cuGraphAddNode(&added[node.id], graph.get(), earlier.data(), data.data(), earlier.size(), &parameters),
        "cuGraphAddNode", "add node", node.name, plan.name);
  }
  return graph;
}

}  // namespace nodewright
