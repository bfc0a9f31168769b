// read_back: what the driver holds for an explicit graph, compared with its plan.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "graph/graph_exec.h"
#include "graph/nodes/held_nodes.h"
#include "graph/nodes/host_call.h"
#include "graph/nodes/node_differences.h"
#include "graph/nodes/node_parameters.h"
#include "runtime/context_guard.h"

namespace nodewright {
namespace {

const BuiltPlan& built_of(const ExplicitGraph& exec, const Plan& plan) {
  const auto found = std::find_if(exec.built_plans().begin(), exec.built_plans().end(),
                                  [&](const auto& built) { return built->plan->name == plan.name; });
  return **found;
}

// One plan of the graph, as it was built, with what the driver's graph for it holds.
class Comparison {
 public:
  Comparison(const ExplicitGraph& exec, const Plan& plan, CUgraph graph)
      : exec_(exec), built_(built_of(exec, plan)), plan_(plan), driver_(exec.plan().device->driver()), graph_(graph) {}

  std::vector<std::string> run() {
    const std::vector<CUgraphNode> held = held_nodes(driver_, graph_, plan_.name);
    const bool as_many = held.size() == plan_.nodes.size();
    if (!as_many)
      differences_.push_back(fmt::format("plan '{}': {} nodes in the plan and {} in the driver", plan_.name,
                                         plan_.nodes.size(), held.size()));
    read_edges();
    if (!built_.nodes.empty())
      take_added(held);
    else if (as_many)
      take_cloned(held);
    else
      return differences_;
    for (const PlanNode& node : plan_.nodes)
      if (handle(node) != nullptr) compare_node(node);
    compare_edges();
    return differences_;
  }

 private:
  void check(CUresult result, std::string_view call) const { driver_.check(result, call, "read graph", plan_.name); }
  CUgraphNode handle(const PlanNode& node) const { return nodes_[node.id]; }

  void read_edges() {
    const std::vector<HeldEdge> edges = held_edges(driver_, graph_, plan_.name);
    edge_count_ = edges.size();
    for (const HeldEdge& edge : edges) {
      held_edges_[{edge.from, edge.to}] = edge.data;
      ++held_in_edges_[edge.to];
    }
  }

  // The nodes that were added, and null for those that are gone.
  void take_added(const std::vector<CUgraphNode>& held) {
    nodes_ = built_.nodes;
    for (const PlanNode& node : plan_.nodes)
      if (std::find(held.begin(), held.end(), handle(node)) == held.end()) {
        differences_.push_back(fmt::format("node '{}' is not in the driver's graph", node.name));
        nodes_[node.id] = nullptr;
      }
  }

  // For each node the first of those left that equals it, or else the one with the fewest differences. A driver that
  // lists a clone's nodes in the order of adding is right at the first look; cuda.h promises no order.
  void take_cloned(std::vector<CUgraphNode> left) {
    for (const PlanNode& node : plan_.nodes) {
      auto nearest = left.begin();
      size_t least = kOtherKind + 1;
      for (auto candidate = left.begin(); candidate != left.end() && least != 0; ++candidate)
        if (const size_t found = distance(node, *candidate); found < least) {
          least = found;
          nearest = candidate;
        }
      nodes_.push_back(*nearest);
      left.erase(nearest);
    }
  }

  // How many differences there are between the node and `held`, in parameters and in the edges into it.
  size_t distance(const PlanNode& node, CUgraphNode held) {
    if (held_type(driver_, held, node.name) != type_of(node)) return kOtherKind;
    nodes_.push_back(held);
    const size_t before = differences_.size();
    compare_node(node);
    const size_t different = differences_.size() - before;
    differences_.resize(before);
    size_t missing = 0, equal = 0;
    for (const Edge& edge : std::ranges::equal_range(plan_.edges, node.id, {}, &Edge::to))
      ++(holds(edge) ? equal : missing);
    nodes_.pop_back();
    return different + missing + held_in_edges_[held] - equal;
  }

  static bool same_data(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
    return a.type == b.type && a.from_port == b.from_port && a.to_port == b.to_port;
  }
  bool holds(const Edge& edge) const {
    const auto found = held_edges_.find({nodes_[edge.from], nodes_[edge.to]});
    return found != held_edges_.end() && same_data(edge_data(edge.type), found->second);
  }

  template <class T>
  void expect(const PlanNode& node, std::string_view what, const T& planned, const T& held) {
    if (planned != held)
      differences_.push_back(
          fmt::format("node '{}': {} is {} in the plan and {} in the driver", node.name, what, planned, held));
  }

  CUgraphNodeType type_of(const PlanNode& node) const {
    switch (node.kind) {
      case NodeKind::kernel:
        break;
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
      case NodeKind::library:
        return type_of(built_.libraries.at(node.id).form);
      case NodeKind::allocate:
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
      case NodeKind::free:
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
      case NodeKind::values:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
      case NodeKind::semaphore_signal:
        return CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
      case NodeKind::semaphore_wait:
        return CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
      case NodeKind::other:  // in no graph that is built of a plan
        break;
    }
    return CU_GRAPH_NODE_TYPE_KERNEL;
  }

  static CUgraphNodeType type_of(LibraryForm form) {
    switch (form) {
      case LibraryForm::kernel:
        break;
      case LibraryForm::graph:
        return CU_GRAPH_NODE_TYPE_GRAPH;
      case LibraryForm::stand_in:
        return CU_GRAPH_NODE_TYPE_HOST;
    }
    return CU_GRAPH_NODE_TYPE_KERNEL;
  }

  void compare_node(const PlanNode& node) {
    const CUgraphNodeType type = held_type(driver_, handle(node), node.name);
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
      case NodeKind::child:
      case NodeKind::conditional:
        return compare_inside(node);
      case NodeKind::library:
        return append(library_differences(node, driver_, built_.libraries.at(node.id), handle(node)));
      case NodeKind::allocate:
      case NodeKind::free:
        return append(memory_differences(node, driver_, handle(node), exec_.memory()));
      case NodeKind::values:
        return append(value_differences(node, driver_, handle(node)));
      case NodeKind::semaphore_signal:
      case NodeKind::semaphore_wait:
        return append(semaphore_differences(node, driver_, handle(node)));
      case NodeKind::empty:
      case NodeKind::other:
        return;
    }
  }

  void compare_inside(const PlanNode& node) {
    for (const auto& inner : node.bodies) {
      CUgraph graph = built_of(exec_, *inner).graph;
      if (graph == nullptr)  // a child of a clone: cloned with it
        check(driver_.cuGraphChildGraphNodeGetGraph(handle(node), &graph), "cuGraphChildGraphNodeGetGraph");
      append(Comparison(exec_, *inner, graph).run());
    }
  }

  void append(std::vector<std::string> lines) {
    std::move(lines.begin(), lines.end(), std::back_inserter(differences_));
  }

  // The returned parameters belong to the node: they are only read.
  void compare_kernel(const PlanNode& node) {
    const CUDA_KERNEL_NODE_PARAMS held = held_kernel(driver_, handle(node), node.name);
    ParameterPointers pointers(node);
    const CUDA_KERNEL_NODE_PARAMS planned = kernel_parameters(node, pointers.get());
    const bool same_kernel = held.kern != nullptr && held.kern == node.kernel->kernel;  // of a green context
    const bool other_function = held.func != node.kernel->function && !same_kernel;
    if (other_function) differences_.push_back(fmt::format("node '{}': another function", node.name));
    const CUcontext context = held.ctx == exec_.plan().device->context() ? nullptr : held.ctx;
    if (context != planned.ctx) differences_.push_back(fmt::format("node '{}': another context", node.name));
    expect(node, "grid x", planned.gridDimX, held.gridDimX);
    expect(node, "grid y", planned.gridDimY, held.gridDimY);
    expect(node, "grid z", planned.gridDimZ, held.gridDimZ);
    expect(node, "block x", planned.blockDimX, held.blockDimX);
    expect(node, "block y", planned.blockDimY, held.blockDimY);
    expect(node, "block z", planned.blockDimZ, held.blockDimZ);
    expect(node, "shared bytes", planned.sharedMemBytes, held.sharedMemBytes);
    if (other_function) {  // its arguments are another struct
      for (const FieldInfo& field : node.fields)
        differences_.push_back(fmt::format("node '{}': argument '{}' is of another function", node.name, field.name));
    } else if (node.kernel->parameters.empty() && !node.fields.empty()) {
      if (held.kernelParams == nullptr || held.kernelParams[0] == nullptr)
        differences_.push_back(fmt::format("node '{}': the driver holds no arguments", node.name));
      else
        compare_fields(node, static_cast<const std::byte*>(held.kernelParams[0]));
    } else {
      compare_parameters(node, held.kernelParams);
    }
  }

  // Field by field: bytes between fields mean nothing.
  void compare_fields(const PlanNode& node, const std::byte* held) {
    const std::vector<std::byte> planned = placed_arguments(node);
    for (const FieldInfo& field : node.fields)
      if (field.role == Role::condition)
        compare_condition(node, field, held + field.offset);
      else
        compare_argument(node, field, planned, held + field.offset);
  }

  std::vector<std::byte> placed_arguments(const PlanNode& node) const {
    std::vector<std::byte> arguments(node.arguments.begin(), node.arguments.end());
    exec_.memory().place_arguments(node, arguments);
    return arguments;
  }

  void compare_parameters(const PlanNode& node, void** held) {
    const std::vector<std::byte> planned = placed_arguments(node);
    for (size_t i = 0; i < node.fields.size(); ++i)
      if (held == nullptr || held[i] == nullptr)
        differences_.push_back(
            fmt::format("node '{}': the driver holds no argument '{}'", node.name, node.fields[i].name));
      else if (node.fields[i].role == Role::condition)
        compare_condition(node, node.fields[i], static_cast<const std::byte*>(held[i]));
      else
        compare_argument(node, node.fields[i], planned, static_cast<const std::byte*>(held[i]));
  }

  void compare_argument(const PlanNode& node, const FieldInfo& field, std::span<const std::byte> planned,
                        const std::byte* held) {
    if (std::memcmp(held, planned.data() + field.offset, field.bytes) != 0)
      differences_.push_back(fmt::format("node '{}': argument '{}' differs", node.name, field.name));
  }

  void compare_condition(const PlanNode& node, const FieldInfo& field, const std::byte* held) {
    Condition planned{}, found{};
    std::memcpy(&planned, node.arguments.data() + field.offset, field.bytes);
    std::memcpy(&found, held, field.bytes);
    if (found.handle != (planned.handle == 0 ? 0 : exec_.condition(planned.handle)))
      differences_.push_back(fmt::format("node '{}': condition '{}' differs", node.name, field.name));
  }

  void compare_attributes(const PlanNode& node) {
    const KernelAttributes& planned = node.attributes;
    const KernelAttributes held = held_attributes(driver_, handle(node), node.name);
    expect(node, "cluster x", planned.cluster[0], held.cluster[0]);
    expect(node, "cluster y", planned.cluster[1], held.cluster[1]);
    expect(node, "cluster z", planned.cluster[2], held.cluster[2]);
    expect(node, "cooperative", planned.cooperative, held.cooperative);
    expect(node, "priority", planned.priority, held.priority);
    if (planned.device_updatable) expect(node, "device-updatable", planned.device_updatable, held.device_updatable);
    if (planned.shared_carveout_percent >= 0)
      expect(node, "shared carve-out", planned.shared_carveout_percent, held.shared_carveout_percent);
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
    if (held != node.event) differences_.push_back(fmt::format("node '{}': another event", node.name));
  }

  void compare_copy(const PlanNode& node) {
    const CopyParameters planned = exec_.memory().placed(node.copy);
    const auto held = copy_of(*plan_.device, held_copy(driver_, handle(node), node.name));
    if (!held) {
      differences_.push_back(fmt::format("node '{}': a copy of planes, or of an array that is gone", node.name));
      return;
    }
    if (planned.from_array != held->from_array || planned.to_array != held->to_array)
      differences_.push_back(fmt::format("node '{}': another array", node.name));
    expect(node, "source", planned.from, held->from);
    expect(node, "destination", planned.to, held->to);
    expect(node, "bytes of a row", planned.bytes, held->bytes);
    expect(node, "rows", planned.rows, held->rows);
    if (node.copy.rows == 1 && node.copy.slices == 1) return;  // pitches mean nothing
    expect(node, "source pitch", planned.from_pitch, held->from_pitch);
    expect(node, "destination pitch", planned.to_pitch, held->to_pitch);
    expect(node, "slices", planned.slices, held->slices);
    expect(node, "source height", planned.from_height, held->from_height);
    expect(node, "destination height", planned.to_height, held->to_height);
  }

  void compare_fill(const PlanNode& node) {
    const FillParameters planned = exec_.memory().placed(node.fill);
    const FillParameters held = held_fill(driver_, handle(node), node.name);
    expect(node, "destination", planned.to, held.to);
    expect(node, "value", planned.value, held.value);
    expect(node, "bytes of an element", planned.element_bytes, held.element_bytes);
    expect(node, "elements of a row", planned.count, held.count);
    expect(node, "rows", planned.rows, held.rows);
    if (node.fill.rows > 1) expect(node, "pitch", planned.pitch, held.pitch);
  }

  void compare_edges() {
    if (edge_count_ != plan_.edges.size())
      differences_.push_back(fmt::format("{} edges in the plan and {} in the driver", plan_.edges.size(), edge_count_));
    for (const Edge& edge : plan_.edges) {
      const std::string text = fmt::format("edge '{}' to '{}'", plan_.nodes[edge.from].name, plan_.nodes[edge.to].name);
      const auto found = held_edges_.find({nodes_[edge.from], nodes_[edge.to]});
      if (found == held_edges_.end()) {
        differences_.push_back(text + " is not in the driver's graph");
        continue;
      }
      const CUgraphEdgeData planned = edge_data(edge.type);
      if (!same_data(planned, found->second))
        differences_.push_back(fmt::format("{}: type {} port {} in the plan, type {} port {} in the driver", text,
                                           planned.type, planned.from_port, found->second.type,
                                           found->second.from_port));
    }
  }

  static constexpr size_t kOtherKind = std::numeric_limits<size_t>::max() - 1;

  const ExplicitGraph& exec_;
  const BuiltPlan& built_;
  const Plan& plan_;
  const Driver& driver_;
  CUgraph graph_;
  std::vector<CUgraphNode> nodes_;  // the driver's, by id; while a clone's are being found, those of the first ids
  size_t edge_count_ = 0;
  std::map<std::pair<CUgraphNode, CUgraphNode>, CUgraphEdgeData> held_edges_;
  std::map<CUgraphNode, size_t> held_in_edges_;  // how many
  std::vector<std::string> differences_;
};

// NVIDIA's driver does not tell USE_NODE_PRIORITY: cuGraphExecGetFlags returns 0 for it (580.159.04 on an H200). Nor
// UPLOAD (cuda.h).
void compare_flags(const ExplicitGraph& exec, const Plan& plan, std::vector<std::string>& differences) {
  constexpr cuuint64_t kUntold = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  const Driver& driver = plan.device->driver();
  cuuint64_t held = 0;
  driver.check(driver.cuGraphExecGetFlags(exec.exec(), &held), "cuGraphExecGetFlags", "read graph", plan.name);
  held &= ~kUntold;
  const cuuint64_t planned = (instantiation_flags(plan) | flags_of(exec.options())) & ~kUntold;
  if (planned != held)
    differences.push_back(fmt::format("plan '{}': instantiation flags are {} in the plan and {} in the driver",
                                      plan.name, planned, held));
}

}  // namespace

std::vector<std::string> read_back(const ExplicitGraph& exec) {
  const ContextGuard current(*exec.plan().device);
  const BuiltPlan& outermost = *exec.built_plans()[0];
  std::vector<std::string> differences = Comparison(exec, *outermost.plan, outermost.graph).run();
  compare_flags(exec, *outermost.plan, differences);
  return differences;
}

}  // namespace nodewright
