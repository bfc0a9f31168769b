#include "graph/run/graph_reserve.h"

#include "graph/nodes/graph_handle.h"
#include "graph/nodes/node_parameters.h"
#include "runtime/context_guard.h"

namespace nodewright {

void reserve_graphs(const Plan& like, size_t graphs) {
  const ContextGuard current(*like.device);
  const Driver& driver = like.device->driver();
  const std::string name = like.name + ".reserve";
  CUgraph created = nullptr;
  driver.check(driver.cuGraphCreate(&created, 0), "cuGraphCreate", "create graph", name);
  const GraphHandle graph(driver, created);
  const CUgraphEdgeData full = edge_data(EdgeType::full);
  CUgraphNode last = nullptr;
  const AllocatedMemory no_memory(like.name);
  KeptParameters kept;
  for (size_t i = 0; i < graphs; ++i)
    for (const PlanNode& node : like.nodes) {
      if (node.kind != NodeKind::kernel || sets_conditions(node) || touches_allocated(like, node)) continue;
      ParameterPointers pointers(node);
      CUgraphNodeParams parameters = graph_node_parameters(node, *like.device, pointers.get(), no_memory, kept);
      CUgraphNode added = nullptr;
      const size_t edges = last == nullptr ? 0 : 1;
      driver.check(driver.cuGraphAddNode(&added, graph.get(), &last, &full, edges, &parameters), "cuGraphAddNode",
                   "add node", node.name, name);
      last = added;
    }
  if (last == nullptr) return;
  const GraphExecHandle exec = instantiate(driver, graph.get(), name, [&](CUgraphNode) { return name; });
}

}  // namespace nodewright
