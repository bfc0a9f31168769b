#include "graph/read/driver_ids.h"

#include "runtime/context_guard.h"

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
