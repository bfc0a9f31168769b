// read_back: what the driver holds for an explicit graph, compared with its plan.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "graph/graph_exec.h"
#include "graph/node_parameters.h"

namespace nodewright {
namespace {

class Comparison {
 public:
  explicit Comparison(const ExplicitGraph& exec) : exec_(exec), plan_(exec.plan()), driver_(plan_.device->driver()) {}

  std::vector<std::string> run() {
    compare_node_set();
    for (const PlanNode& node : plan_.nodes) compare_node(node);
    compare_edges();
    return std::move(differences_);
  }

 private:
  void check(CUresult result, std::string_view call) const { driver_.check(result, call, "read graph", plan_.name); }

  template <class T>
  void expect(const PlanNode& node, std::string_view what, const T& planned, const T& held) {
    if (planned != held)
      differences_.push_back(
          fmt::format("node '{}': {} is {} in the plan and {} in the driver", node.name, what, planned, held));
  }

  void compare_node_set() {
    size_t count = 0;
    check(driver_.cuGraphGetNodes(exec_.graph(), nullptr, &count), "cuGraphGetNodes");
    std::vector<CUgraphNode> held(count);
    if (count != 0) check(driver_.cuGraphGetNodes(exec_.graph(), held.data(), &count), "cuGraphGetNodes");
    if (count != plan_.nodes.size())
      differences_.push_back(fmt::format("{} nodes in the plan and {} in the driver", plan_.nodes.size(), count));
    for (const PlanNode& node : plan_.nodes) {
      if (std::find(held.begin(), held.end(), exec_.node(node.id)) == held.end())
        differences_.push_back(fmt::format("node '{}' is not in the driver's graph", node.name));
      id_of_[exec_.node(node.id)] = node.id;
    }
  }

  void compare_node(const PlanNode& node) {
    CUgraphNodeType type{};
    check(driver_.cuGraphNodeGetType(exec_.node(node.id), &type), "cuGraphNodeGetType");
    void* argument = argument_address(node.arguments);
    const CUgraphNodeParams planned = graph_node_parameters(node, plan_.device->context(), &argument);
    expect<int>(node, "type", planned.type, type);
    if (planned.type != type) return;
    if (node.kind == NodeKind::kernel) compare_kernel(node);
    if (node.kind == NodeKind::memcpy) compare_copy(node);
    if (node.kind == NodeKind::memset) compare_fill(node);
  }

  // The returned parameters belong to the node: they are only read.
  void compare_kernel(const PlanNode& node) {
    CUDA_KERNEL_NODE_PARAMS held{};
    check(driver_.cuGraphKernelNodeGetParams(exec_.node(node.id), &held), "cuGraphKernelNodeGetParams");
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
      const auto* bytes = static_cast<const std::byte*>(held.kernelParams[0]) + field.offset;
      if (std::memcmp(bytes, node.arguments.data() + field.offset, field.bytes) != 0)
        differences_.push_back(fmt::format("node '{}': argument '{}' differs", node.name, field.name));
    }
  }

  void compare_copy(const PlanNode& node) {
    CUDA_MEMCPY3D held{};
    check(driver_.cuGraphMemcpyNodeGetParams(exec_.node(node.id), &held), "cuGraphMemcpyNodeGetParams");
    // Host memory may come back as unified: an address is an address.
    const auto address = [](CUmemorytype type, const void* host, CUdeviceptr device) {
      return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : static_cast<uint64_t>(device);
    };
    expect(node, "source", node.copy.from, address(held.srcMemoryType, held.srcHost, held.srcDevice));
    expect(node, "destination", node.copy.to, address(held.dstMemoryType, held.dstHost, held.dstDevice));
    expect<uint64_t>(node, "bytes", node.copy.bytes,
                     held.WidthInBytes * std::max<size_t>(held.Height, 1) * std::max<size_t>(held.Depth, 1));
  }

  void compare_fill(const PlanNode& node) {
    CUDA_MEMSET_NODE_PARAMS held{};
    check(driver_.cuGraphMemsetNodeGetParams(exec_.node(node.id), &held), "cuGraphMemsetNodeGetParams");
    expect<uint64_t>(node, "destination", node.fill.to, held.dst);
    expect(node, "value", node.fill.value, held.value);
    expect<uint64_t>(node, "bytes", node.fill.count * node.fill.element_bytes,
                     held.width * held.elementSize * std::max<size_t>(held.height, 1));
  }

  void compare_edges() {
    size_t count = 0;
    check(driver_.cuGraphGetEdges(exec_.graph(), nullptr, nullptr, nullptr, &count), "cuGraphGetEdges");
    std::vector<CUgraphNode> from(count), to(count);
    std::vector<CUgraphEdgeData> data(count);
    if (count != 0)
      check(driver_.cuGraphGetEdges(exec_.graph(), from.data(), to.data(), data.data(), &count), "cuGraphGetEdges");
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
  const Plan& plan_;
  const Driver& driver_;
  std::map<CUgraphNode, uint32_t> id_of_;
  std::vector<std::string> differences_;
};

}  // namespace

std::vector<std::string> read_back(const ExplicitGraph& exec) { return Comparison(exec).run(); }

}  // namespace nodewright
