#include "graph/graph_exec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/node_parameters.h"
#include "graph/stopwatch.h"

namespace nodewright {
namespace {

// The bytes of every role field, whatever its element type.
struct RoleField {
  uint64_t address, count;
};
static_assert(sizeof(RoleField) == sizeof(In<float>));

// Rejects a plan before anything is made of it.
Plan checked(Plan plan) {
  check_plan(plan);
  return plan;
}

}  // namespace

ExplicitGraph::ExplicitGraph(Plan plan)
    : plan_(checked(std::move(plan))), driver_(&plan_.device->driver()), graph_(*driver_), exec_(*driver_) {
  Stopwatch watch;
  CUgraph graph = nullptr;
  driver_->check(driver_->cuGraphCreate(&graph, 0), "cuGraphCreate", "create graph", plan_.name);
  graph_ = GraphHandle(*driver_, graph);
  add_nodes();
  stats_.add_ms = watch.lap_ms();
  exec_ = instantiate(*driver_, graph, plan_.name, [&](CUgraphNode node) {
    const auto found = std::find(nodes_.begin(), nodes_.end(), node);
    return found == nodes_.end() ? std::string("?") : plan_.nodes[static_cast<size_t>(found - nodes_.begin())].name;
  });
  stats_.instantiate_ms = watch.lap_ms();
}

// Every node is added together with its in-edges: drivers 13000 to 13040 were reported to give all edges of one
// cuGraphAddDependencies call the type of the first.
void ExplicitGraph::add_nodes() {
  std::vector<std::vector<const Edge*>> in_edges(plan_.nodes.size());
  for (const Edge& edge : plan_.edges) {
    in_edges[edge.to].push_back(&edge);
    ++(edge.type == EdgeType::full ? stats_.full_edges : stats_.programmatic_edges);
  }
  stats_.nodes = plan_.nodes.size();
  nodes_.reserve(plan_.nodes.size());
  arguments_.reserve(plan_.nodes.size());

  std::vector<CUgraphNode> before;
  std::vector<CUgraphEdgeData> types;
  for (const PlanNode& node : plan_.nodes) {
    before.clear();
    types.clear();
    for (const Edge* edge : in_edges[node.id]) {
      before.push_back(nodes_[edge->from]);
      types.push_back(edge_data(edge->type));
    }
    void* argument = argument_address(node.arguments);
    CUgraphNodeParams parameters = graph_node_parameters(node, plan_.device->context(), &argument);
    CUgraphNode added = nullptr;
    driver_->label(node.name);
    driver_->check(
        driver_->cuGraphAddNode(&added, graph_.get(), before.data(), types.data(), before.size(), &parameters),
        "cuGraphAddNode", "add node", node.name,
        fmt::format("{} of plan '{}', {} edges into it", to_string(node.kind), plan_.name, before.size()));
    nodes_.push_back(added);
    arguments_.push_back(node.arguments);
  }
}

void ExplicitGraph::upload(const Stream& stream) {
  Stopwatch watch;
  driver_->check(driver_->cuGraphUpload(exec_.get(), stream.get()), "cuGraphUpload", "upload graph", plan_.name);
  stats_.upload_ms = watch.lap_ms();
}

void ExplicitGraph::launch(const Stream& stream) const {
  driver_->check(driver_->cuGraphLaunch(exec_.get(), stream.get()), "cuGraphLaunch", "launch graph", plan_.name);
}

const PlanNode& ExplicitGraph::kernel_node(NodeId node, size_t args_bytes) const {
  const auto refuse = [&](std::string detail) {
    throw Error({.doing = "patch graph",
                 .object = plan_.name,
                 .detail = std::move(detail),
                 .advice = "pass the Node that launch() of this plan's builder returned"});
  };
  if (node.plan != plan_token(plan_.name) || node.index >= plan_.nodes.size())
    refuse(fmt::format("node {} belongs to another plan; this one has {} nodes", node.index, plan_.nodes.size()));
  const PlanNode& found = plan_.nodes[node.index];
  if (found.kind != NodeKind::kernel || found.arguments.size() != args_bytes)
    refuse(fmt::format("node '{}' is a {} with {} argument bytes, not a kernel with {}", found.name,
                       to_string(found.kind), found.arguments.size(), args_bytes));
  return found;
}

void ExplicitGraph::copy_arguments(NodeId node, void* args, size_t bytes) const {
  std::memcpy(args, arguments_[kernel_node(node, bytes).id].data(), bytes);
}

void ExplicitGraph::patch_field(NodeId node, size_t offset, const void* value, size_t bytes) {
  const PlanNode& planned = plan_.nodes[node.index];
  const auto field = std::find_if(planned.fields.begin(), planned.fields.end(),
                                  [&](const FieldInfo& info) { return info.offset == offset; });
  if (field == planned.fields.end() || field->bytes != bytes)
    throw Error({.doing = "patch node",
                 .object = planned.name,
                 .detail = fmt::format("it has no field of {} bytes at offset {}", bytes, offset)});
  if (field->role != Role::scalar && field->role != Role::condition) check_within_envelope(planned, *field, value);

  std::vector<std::byte> changed = arguments_[planned.id];
  std::memcpy(changed.data() + offset, value, bytes);
  void* argument = argument_address(changed);
  const CUDA_KERNEL_NODE_PARAMS parameters = kernel_parameters(planned, &argument);
  driver_->label(planned.name);
  driver_->check(driver_->cuGraphExecKernelNodeSetParams(exec_.get(), nodes_[planned.id], &parameters),
                 "cuGraphExecKernelNodeSetParams", "patch node", planned.name, fmt::format("field '{}'", field->name));
  arguments_[planned.id] = std::move(changed);
}

void ExplicitGraph::check_within_envelope(const PlanNode& node, const FieldInfo& field, const void* value) const {
  RoleField wanted;
  std::memcpy(&wanted, value, sizeof wanted);
  if (wanted.count == 0) return;
  const auto refuse = [&](std::string detail) {
    throw Error({.doing = "patch node",
                 .object = node.name,
                 .detail = fmt::format("field '{}' to {} elements of {} bytes at {:#x}: {}", field.name, wanted.count,
                                       field.element_bytes, wanted.address, detail),
                 .advice = "build the node with an envelope that contains the new range"});
  };
  const auto use = std::find_if(node.uses.begin(), node.uses.end(),
                                [&](const Use& candidate) { return candidate.field == field.name; });
  if (use == node.uses.end()) refuse("it was empty when the node was built");
  const uint64_t begin = plan_.buffers[use->buffer].range.address + use->offset;
  const std::string envelope = fmt::format(
      "{}, {:#x} + {} bytes", describe_range(plan_, use->buffer, use->offset, use->bytes), begin, use->bytes);
  if (wanted.address % field.element_bytes != 0) refuse("not aligned to its element");
  if (wanted.address < begin || wanted.address - begin > use->bytes ||
      wanted.count > (use->bytes - (wanted.address - begin)) / field.element_bytes)
    refuse("outside its envelope " + envelope);
}

}  // namespace nodewright
