#include "graph/nodes/node_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/nodes/held_nodes.h"
#include "graph/nodes/node_parameters.h"

namespace nodewright {
namespace {

class Differences {
 public:
  Differences(const PlanNode& node, const Driver& driver) : node_(node), driver_(driver) {}

  void check(CUresult result, std::string_view call) const { driver_.check(result, call, "read node", node_.name); }
  template <class T>
  void expect(std::string_view what, const T& planned, const T& held) {
    if (planned != held) add(fmt::format("{} is {} in the plan and {} in the driver", what, planned, held));
  }
  void add(std::string_view text) { lines_.push_back(fmt::format("node '{}': {}", node_.name, text)); }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  const PlanNode& node_;
  const Driver& driver_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> memory_differences(const PlanNode& node, const Driver& driver, CUgraphNode held,
                                            const AllocatedMemory& memory) {
  Differences found(node, driver);
  CUdeviceptr address = 0;
  if (node.kind == NodeKind::allocate) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    found.check(driver.cuGraphMemAllocNodeGetParams(held, &parameters), "cuGraphMemAllocNodeGetParams");
    found.expect<uint64_t>("bytes", node.uses[0].bytes, parameters.bytesize);
    address = parameters.dptr;
  } else {
    found.check(driver.cuGraphMemFreeNodeGetParams(held, &address), "cuGraphMemFreeNodeGetParams");
  }
  found.expect<uint64_t>("memory", memory.address_of(node.allocated), address);
  return found.take();
}

// What is read belongs to the node.
std::vector<std::string> value_differences(const PlanNode& node, const Driver& driver, CUgraphNode held) {
  Differences found(node, driver);
  const CUDA_BATCH_MEM_OP_NODE_PARAMS parameters = held_values(driver, held, node.name);
  const std::vector<CUstreamBatchMemOpParams> planned = value_parameters(node.values);
  found.expect<size_t>("operations", planned.size(), parameters.count);
  for (size_t i = 0; i < std::min<size_t>(planned.size(), parameters.count); ++i) {
    const auto &a = planned[i].waitValue, &b = parameters.paramArray[i].waitValue;
    const bool wide = node.values[i].bytes == 8;
    const std::string which = fmt::format("operation {}'s ", i);
    found.expect<int>(which + "type", a.operation, b.operation);
    found.expect<uint64_t>(which + "address", a.address, b.address);
    found.expect<uint64_t>(which + "value", wide ? a.value64 : a.value, wide ? b.value64 : b.value);
    found.expect(which + "flags", a.flags, b.flags);
  }
  return found.take();
}

std::vector<std::string> semaphore_differences(const PlanNode& node, const Driver& driver, CUgraphNode held) {
  Differences found(node, driver);
  const std::vector<SemaphoreParameters> semaphores = held_semaphores(
      driver, held,
      node.kind == NodeKind::semaphore_signal ? CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL : CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
      node.name);
  found.expect<size_t>("semaphores", 1, semaphores.size());
  if (semaphores.empty()) return found.take();
  if (semaphores[0].semaphore != node.semaphore.semaphore) found.add("another semaphore");
  found.expect<uint64_t>("value", node.semaphore.value, semaphores[0].value);
  return found.take();
}

}  // namespace nodewright
