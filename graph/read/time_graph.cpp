// time_graph: a copy of a graph that was built elsewhere, in which stamp kernels stand before and after every node.
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/nodes/graph_handle.h"
#include "graph/nodes/held_nodes.h"
#include "graph/nodes/node_parameters.h"
#include "graph/read/read_graph.h"
#include "graph/timing/stamped_launches.h"
#include "kernels_src/stamp.h"
#include "runtime/context_guard.h"

namespace nodewright {
namespace {

class TwinInPlace {
 public:
  TwinInPlace(const Driver& driver, const Kernel<Stamp>& stamp, const DeviceBuffer& stamps)
      : driver_(driver), stamp_(stamp), slots_(view_of<BlockStamps>(stamps)) {}

  // `plan` was read from `graph`.
  void bracket(CUgraph graph, const Plan& plan, const std::vector<StampedNode>& layout) {
    std::vector<CUgraphNode> before(plan.nodes.size()), after(plan.nodes.size());
    std::vector<CUgraphNode> from, to;
    const auto add_edge = [&](CUgraphNode earlier, CUgraphNode later) {
      from.push_back(earlier);
      to.push_back(later);
    };
    remove_edges(graph, plan);
    for (const PlanNode& node : plan.nodes) {
      const StampedNode& stamped = layout[node.id];
      before[node.id] = add_stamp(graph, stamped.first_slot, node.name);
      after[node.id] = add_stamp(graph, stamped.first_slot + 1, node.name);
      add_edge(before[node.id], node.read->handle);
      add_edge(node.read->handle, after[node.id]);
      if (node.kind != NodeKind::child) continue;
      CUgraph inside = nullptr;
      check(driver_.cuGraphChildGraphNodeGetGraph(node.read->handle, &inside), "cuGraphChildGraphNodeGetGraph",
            node.name);
      bracket(inside, *node.bodies[0], stamped.bodies[0]);
    }
    for (const Edge& edge : plan.edges) add_edge(after[edge.from], before[edge.to]);
    if (from.empty()) return;
    check(driver_.cuGraphAddDependencies(graph, from.data(), to.data(), nullptr, from.size()), "cuGraphAddDependencies",
          plan.name);
  }

 private:
  void remove_edges(CUgraph graph, const Plan& plan) {
    for (const HeldEdge& edge : held_edges(driver_, graph, plan.name))
      check(driver_.cuGraphRemoveDependencies(graph, &edge.from, &edge.to, &edge.data, 1), "cuGraphRemoveDependencies",
            plan.name);
  }

  CUgraphNode add_stamp(CUgraph graph, uint64_t slot, const std::string& name) {
    const Stamp args{.stamps = slots_.subview(slot, 1)};
    ParameterPointers pointers(stamp_.loaded, std::as_bytes(std::span(&args, 1)));
    CUgraphNodeParams params = kernel_node(kernel_parameters(*stamp_.loaded, stamp_.shape, pointers.get()));
    CUgraphNode node = nullptr;
    check(driver_.cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params), "cuGraphAddNode", name);
    return node;
  }

  void check(CUresult result, const char* call, const std::string& name) const {
    if (result != CUDA_SUCCESS) driver_.check(result, call, "time graph", name);
  }

  const Driver& driver_;
  Kernel<Stamp> stamp_;
  View<BlockStamps> slots_;
};

// The nodes of the copy are gone when the times are there.
void forget_handles(Plan& plan) {
  for (PlanNode& node : plan.nodes) {
    const auto read = std::make_shared<ReadNode>(*node.read);
    read->handle = nullptr;
    node.read = read;
    for (auto& body : node.bodies) {
      const auto inside = std::make_shared<Plan>(*body);
      forget_handles(*inside);
      body = inside;
    }
  }
}

}  // namespace

TimedGraph time_graph(Device& device, CUgraph graph, KernelCache& kernels, const Stream& stream,
                      const ReadOptions& options, const NodeTimerOptions& how) {
  const ContextGuard current(device);
  const Driver& driver = device.driver();
  CUgraph copy = nullptr;
  if (const CUresult result = driver.cuGraphClone(&copy, graph); result != CUDA_SUCCESS)
    driver.check(result, "cuGraphClone", "time graph", options.name,
                 "the driver copies no graph that allocates memory or has a conditional node",
                 "time the parts of it that have neither");
  const GraphHandle owner(driver, copy);
  Plan plan = read_graph(device, copy, options);
  const TimedTwin twin = with_slots(plan);
  TwinInPlace(driver, kernels.kernel<Stamp>("stamp", stamp_shape()), twin.stamps).bracket(copy, plan, twin.nodes);
  const auto name_of = [&](CUgraphNode) { return options.name; };
  const GraphExecHandle plain = instantiate(driver, graph, options.name, name_of),
                        stamped = instantiate(driver, copy, options.name, name_of);
  const auto launch = [&](const GraphExecHandle& exec) {
    return [&driver, &options, &exec](const Stream& on) {
      driver.check(driver.cuGraphLaunch(exec.get(), on.get()), "cuGraphLaunch", "time graph", options.name);
    };
  };
  StampedLaunches launches(plan, twin, kernels, stream);
  PlanTimings timings = launches.measure(plan, twin, launch(plain), launch(stamped), how);
  forget_handles(plan);
  return {std::move(plan), std::move(timings)};
}

}  // namespace nodewright
