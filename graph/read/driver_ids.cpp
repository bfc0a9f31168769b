#include "graph/read/driver_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "graph/nodes/held_nodes.h"
#include "runtime/context_guard.h"
#include "runtime/error.h"

namespace nodewright {

std::optional<DriverIds> driver_ids(const Device& device, CUgraph graph, CUgraphNode node) {
  const Driver& driver = device.driver();
  if (!driver.cuGraphGetId || !driver.cuGraphNodeGetLocalId || !driver.cuGraphNodeGetToolsId) return std::nullopt;
  const ContextGuard current(device);
  unsigned of_graph = 0, of_node = 0;
  unsigned long long of_tools = 0;
  const auto check = [&](CUresult result, std::string_view call) {
    driver.check(result, call, "read the ids of", "a node");
  };
  check(driver.cuGraphGetId(graph, &of_graph), "cuGraphGetId");
  check(driver.cuGraphNodeGetLocalId(node, &of_node), "cuGraphNodeGetLocalId");
  check(driver.cuGraphNodeGetToolsId(node, &of_tools), "cuGraphNodeGetToolsId");
  const std::vector<CUgraphNode> held = held_nodes(driver, graph, "the ids' graph");
  if (std::ranges::find(held, node) == held.end())
    throw Error({.doing = "read the ids of",
                 .object = "a node",
                 .detail = fmt::format("node {} of another graph is not in graph {}, which has {} nodes", of_node,
                                       of_graph, held.size()),
                 .advice = "name the graph that the node is in: its child or body, where it is in one"});
  return DriverIds{of_graph, of_node, of_tools};
}

std::optional<uint32_t> driver_id(const Device& device, CUgraphExec exec) {
  const Driver& driver = device.driver();
  if (!driver.cuGraphExecGetId) return std::nullopt;
  const ContextGuard current(device);
  unsigned id = 0;
  driver.check(driver.cuGraphExecGetId(exec, &id), "cuGraphExecGetId", "read the id of", "an executable graph");
  return id;
}

}  // namespace nodewright
