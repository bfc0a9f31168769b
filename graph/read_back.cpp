// read_back: what the driver holds for an explicit graph, compared with its plan.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "graph/graph_exec.h"
#include "graph/host_call.h"
#include "graph/node_parameters.h"
#include "graph/product_node.h"
#include "runtime/event.h"

namespace nodewright {
namespace {

// One plan of the graph, with what the driver's graph for it holds.
class Comparison {
 public:
  Comparison(const ExplicitGraph& exec, const BuiltPlan& built, std::vector<std::string>& differences)
      : exec_(exec),
        built_(built),
        plan_(*built.plan),
        driver_(exec.plan().device->driver()),
        differences_(differences) {}

  void run() {
    const std::vector<CUgraphNode> held = held_nodes();
    if (held.size() != plan_.nodes.size())
      differences_.push_back(fmt::format("plan '{}': {} nodes in the plan and {} in the driver", plan_.name,
                                         plan_.nodes.size(), held.size()));
    if (built_.nodes.empty()) return;  // a clone: its nodes have handles that nobody can tell apart
    for (const PlanNode& node : plan_.nodes) {
      if (std::find(held.begin(), held.end(), handle(node)) == held.end())
        differences_.push_back(fmt::format("node '{}' is not in the driver's graph", node.name));
      id_of_[handle(node)] = node.id;
    }
    for (const PlanNode& node : plan_.nodes) compare_node(node);
    compare_edges();
  }

 private:
  void check(CUresult result, std::string_view call) const { driver_.check(result, call, "read graph", plan_.name); }
  CUgraphNode handle(const PlanNode& node) const { return built_.nodes[node.id]; }

  std::vector<CUgraphNode> held_nodes() const {
    size_t count = 0;
    check(driver_.cuGraphGetNodes(built_.graph, nullptr, &count), "cuGraphGetNodes");
    std::vector<CUgraphNode> held(count);
    if (count != 0) check(driver_.cuGraphGetNodes(built_.graph, held.data(), &count), "cuGraphGetNodes");
    return held;
  }

  template <class T>
  void expect(const PlanNode& node, std::string_view what, const T& planned, const T& held) {
    if (planned != held)
      differences_.push_back(
          fmt::format("node '{}': {} is {} in the plan and {} in the driver", node.name, what, planned, held));
  }

  static CUgraphNodeType type_of(const PlanNode& node) {
    switch (node.kind) {
      case NodeKind::kernel:
        return CU_GRAPH_NODE_TYPE_KERNEL;
      case NodeKind::memcpy:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
      case NodeKind::memset:
        return CU_GRAPH_NODE_TYPE_MEMSET;
      case NodeKind::host:
        return CU_GRAPH_NODE_TYPE_HOST;
      case NodeKind::empty:
        return CU_GRAPH_NODE_TYPE_EMPTY;
      case NodeKind::child:
        return CU_GRAPH_NODE_TYPE_GRAPH;
      case NodeKind::event_record:
        return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
      case NodeKind::event_wait:
        return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
      case NodeKind::conditional:
        return CU_GRAPH_NODE_TYPE_CONDITIONAL;
      case NodeKind::product:
        break;  // a kernel or a child graph: product_differences looks
    }
    return CU_GRAPH_NODE_TYPE_KERNEL;
  }

  void compare_node(const PlanNode& node) {
    if (node.kind == NodeKind::product) {
      for (std::string& difference : product_differences(plan_, node, built_.products.at(node.id)))
        differences_.push_back(std::move(difference));
      return;
    }
    CUgraphNodeType type{};
    check(driver_.cuGraphNodeGetType(handle(node), &type), "cuGraphNodeGetType");
    expect<int>(node, "type", type_of(node), type);
    if (type_of(node) != type) return;
    switch (node.kind) {
      case NodeKind::kernel:
        compare_kernel(node);
        return compare_attributes(node);
      case NodeKind::memcpy:
        return compare_copy(node);
      case NodeKind::memset:
        return compare_fill(node);
      case NodeKind::host:
        return compare_host(node);
      case NodeKind::event_record:
      case NodeKind::event_wait:
        return compare_event(node);
      case NodeKind::child:  // its plan and the bodies of conditionals are compared in their turn
      case NodeKind::conditional:
      case NodeKind::empty:
      case NodeKind::product:
        return;
    }
  }

  // The returned parameters belong to the node: they are only read.
  void compare_kernel(const PlanNode& node) {
    CUDA_KERNEL_NODE_PARAMS held{};
    check(driver_.cuGraphKernelNodeGetParams(handle(node), &held), "cuGraphKernelNodeGetParams");
    void* argument = argument_address(node.arguments);
    const CUDA_KERNEL_NODE_PARAMS planned = kernel_parameters(node, &argument);
    if (planned.func != held.func) differences_.push_back(fmt::format("node '{}': another function", node.name));
    expect(node, "grid x", planned.gridDimX, held.gridDimX);
    expect(node, "grid y", planned.gridDimY, held.gridDimY);
    expect(node, "grid z", planned.gridDimZ, held.gridDimZ);
    expect(node, "block x", planned.blockDimX, held.blockDimX);
    expect(node, "block y", planned.blockDimY, held.blockDimY);
    expect(node, "block z", planned.blockDimZ, held.blockDimZ);
    expect(node, "shared bytes", planned.sharedMemBytes, held.sharedMemBytes);
    if (held.kernelParams == nullptr || held.kernelParams[0] == nullptr) {
      differences_.push_back(fmt::format("node '{}': the driver holds no arguments", node.name));
      return;
    }
    // Field by field: bytes between fields mean nothing.
    for (const FieldInfo& field : node.fields) {
      if (field.role == Role::condition) {
        compare_condition(node, field, static_cast<const std::byte*>(held.kernelParams[0]));
        continue;
      }
      const auto* bytes = static_cast<const std::byte*>(held.kernelParams[0]) + field.offset;
      if (std::memcmp(bytes, node.arguments.data() + field.offset, field.bytes) != 0)
        differences_.push_back(fmt::format("node '{}': argument '{}' differs", node.name, field.name));
    }
  }

  void compare_condition(const PlanNode& node, const FieldInfo& field, const std::byte* held) {
    Condition planned, found;
    std::memcpy(&planned, node.arguments.data() + field.offset, sizeof planned);
    std::memcpy(&found, held + field.offset, sizeof found);
    if (found.handle != exec_.condition(planned.handle))
      differences_.push_back(fmt::format("node '{}': condition '{}' differs", node.name, field.name));
  }

  void compare_attributes(const PlanNode& node) {
    const auto held = [&](CUkernelNodeAttrID id) {
      CUkernelNodeAttrValue value{};
      check(driver_.cuGraphKernelNodeGetAttribute(handle(node), id, &value), "cuGraphKernelNodeGetAttribute");
      return value;
    };
    const KernelAttributes& planned = node.attributes;
    const auto cluster = held(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim;
    // The driver says 0 where no cluster was asked for.
    expect(node, "cluster x", planned.cluster[0], std::max(cluster.x, 1u));
    expect(node, "cluster y", planned.cluster[1], std::max(cluster.y, 1u));
    expect(node, "cluster z", planned.cluster[2], std::max(cluster.z, 1u));
    expect(node, "cooperative", planned.cooperative, held(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative != 0);
    expect(node, "priority", planned.priority, held(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority);
    if (planned.shared_carveout_percent >= 0)
      expect<int>(node, "shared carve-out", planned.shared_carveout_percent,
                  static_cast<int>(held(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT).sharedMemCarveout));
  }

  void compare_host(const PlanNode& node) {
    CUDA_HOST_NODE_PARAMS held{};
    check(driver_.cuGraphHostNodeGetParams(handle(node), &held), "cuGraphHostNodeGetParams");
    if (held.fn != call_host || held.userData != node.host.get())
      differences_.push_back(fmt::format("node '{}': another function or other data", node.name));
  }

  void compare_event(const PlanNode& node) {
    CUevent held = nullptr;
    if (node.kind == NodeKind::event_record)
      check(driver_.cuGraphEventRecordNodeGetEvent(handle(node), &held), "cuGraphEventRecordNodeGetEvent");
    else
      check(driver_.cuGraphEventWaitNodeGetEvent(handle(node), &held), "cuGraphEventWaitNodeGetEvent");
    if (held != node.event->get()) differences_.push_back(fmt::format("node '{}': another event", node.name));
  }

  void compare_copy(const PlanNode& node) {
    CUDA_MEMCPY3D held{};
    check(driver_.cuGraphMemcpyNodeGetParams(handle(node), &held), "cuGraphMemcpyNodeGetParams");
    // Host memory may come back as unified: an address is an address.
    const auto address = [](CUmemorytype type, const void* host, CUdeviceptr device) {
      return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : static_cast<uint64_t>(device);
    };
    expect(node, "source", node.copy.from, address(held.srcMemoryType, held.srcHost, held.srcDevice));
    expect(node, "destination", node.copy.to, address(held.dstMemoryType, held.dstHost, held.dstDevice));
    expect<uint64_t>(node, "bytes of a row", node.copy.bytes, held.WidthInBytes);
    expect<uint64_t>(node, "rows", node.copy.rows, std::max<size_t>(held.Height, 1) * std::max<size_t>(held.Depth, 1));
    if (node.copy.rows == 1) return;  // pitches mean nothing
    expect<uint64_t>(node, "source pitch", node.copy.from_pitch, held.srcPitch);
    expect<uint64_t>(node, "destination pitch", node.copy.to_pitch, held.dstPitch);
  }

  void compare_fill(const PlanNode& node) {
    CUDA_MEMSET_NODE_PARAMS held{};
    check(driver_.cuGraphMemsetNodeGetParams(handle(node), &held), "cuGraphMemsetNodeGetParams");
    expect<uint64_t>(node, "destination", node.fill.to, held.dst);
    expect(node, "value", node.fill.value, held.value);
    expect(node, "bytes of an element", node.fill.element_bytes, held.elementSize);
    expect<uint64_t>(node, "elements of a row", node.fill.count, held.width);
    expect<uint64_t>(node, "rows", node.fill.rows, std::max<size_t>(held.height, 1));
    if (node.fill.rows > 1) expect<uint64_t>(node, "pitch", node.fill.pitch, held.pitch);
  }

  void compare_edges() {
    size_t count = 0;
    check(driver_.cuGraphGetEdges(built_.graph, nullptr, nullptr, nullptr, &count), "cuGraphGetEdges");
    std::vector<CUgraphNode> from(count), to(count);
    std::vector<CUgraphEdgeData> data(count);
    if (count != 0)
      check(driver_.cuGraphGetEdges(built_.graph, from.data(), to.data(), data.data(), &count), "cuGraphGetEdges");
    std::map<std::pair<uint32_t, uint32_t>, CUgraphEdgeData> held;
    for (size_t i = 0; i < count; ++i)
      if (id_of_.contains(from[i]) && id_of_.contains(to[i])) held[{id_of_[from[i]], id_of_[to[i]]}] = data[i];
    if (count != plan_.edges.size())
      differences_.push_back(fmt::format("{} edges in the plan and {} in the driver", plan_.edges.size(), count));
    for (const Edge& edge : plan_.edges) {
      const std::string text = fmt::format("edge '{}' to '{}'", plan_.nodes[edge.from].name, plan_.nodes[edge.to].name);
      const auto found = held.find({edge.from, edge.to});
      if (found == held.end()) {
        differences_.push_back(text + " is not in the driver's graph");
        continue;
      }
      const CUgraphEdgeData planned = edge_data(edge.type);
      if (planned.type != found->second.type || planned.from_port != found->second.from_port ||
          planned.to_port != found->second.to_port)
        differences_.push_back(fmt::format("{}: type {} port {} in the plan, type {} port {} in the driver", text,
                                           planned.type, planned.from_port, found->second.type,
                                           found->second.from_port));
    }
  }

  const ExplicitGraph& exec_;
  const BuiltPlan& built_;
  const Plan& plan_;
  const Driver& driver_;
  std::vector<std::string>& differences_;
  std::map<CUgraphNode, uint32_t> id_of_;
};

}  // namespace

std::vector<std::string> read_back(const ExplicitGraph& exec) {
  std::vector<std::string> differences;
  for (const auto& built : exec.built_plans())
    if (built->graph != nullptr) Comparison(exec, *built, differences).run();
  return differences;
}

}  // namespace nodewright
