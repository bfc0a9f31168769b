#include "graph/graph_exec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/graph_builder.h"
#include "graph/nodes/host_call.h"
#include "graph/nodes/node_parameters.h"
#include "graph/run/stream_check.h"
#include "graph/timing/stopwatch.h"
#include "runtime/calls/child_ownership.h"
#include "runtime/context_guard.h"

namespace nodewright {
namespace {

// Rejects a plan before anything is made of it.
std::shared_ptr<const Plan> checked(Plan plan, const InstantiateOptions& options) {
  check_plan(plan);
  check_options(plan, options);
  return std::make_shared<const Plan>(std::move(plan));
}

}  // namespace

ExplicitGraph::ExplicitGraph(Plan plan, const InstantiateOptions& options)
    : plan_(checked(std::move(plan), options)),
      share_(options.budget == nullptr ? GraphBudget::Share() : options.budget->take(*plan_)),
      driver_(&plan_->device->driver()),
      graph_(*driver_),
      instantiated_(*driver_),
      exec_(*driver_),
      memory_(plan_->name),
      left_(*plan_->device),
      options_(options),
      host_calls_(*plan_->device),
      kept_(*driver_) {
  const ContextGuard current(*plan_->device);
  Stopwatch watch;
  CUgraph graph = nullptr;
  driver_->check(driver_->cuGraphCreate(&graph, 0), "cuGraphCreate", "create graph", plan_->name);
  graph_ = GraphHandle(*driver_, graph);
  add_nodes(plan_, graph);
  kept_.retain(*plan_, graph, KeptInside::bodies);
  library_stream_.reset();
  host_calls_.add(*plan_);
  stats_.add_ms = watch.lap_ms();
  if (options.upload != nullptr) check_stream(*plan_, *options.upload, "upload graph");
  exec_ = instantiate(
      *driver_, graph, plan_->name, [&](CUgraphNode node) { return name_of(node); },
      {instantiation_flags(*plan_) | flags_of(options), options.upload == nullptr ? nullptr : options.upload->get()});
  if (options.upload != nullptr) needs_upload_ = nullptr;
  for (const PlanNode& node : plan_->nodes)
    if (node.kind == NodeKind::allocate && plan_->buffers[node.uses[0].buffer].live_out)
      left_.add(memory_.address_of(node.allocated));
  stats_.instantiate_ms = watch.lap_ms();
}

// Every node is added together with its in-edges: drivers 13000 to 13040 were reported to give all edges of one
// cuGraphAddDependencies call the type of the first.
void ExplicitGraph::add_nodes(const std::shared_ptr<const Plan>& shared, CUgraph graph) {
  const Plan& plan = *shared;
  BuiltPlan& built = *built_.emplace_back(std::make_unique<BuiltPlan>());
  built.plan = shared;
  built.id = plan.id;
  built.graph = graph;
  built.nodes.reserve(plan.nodes.size());
  built.states.resize(plan.nodes.size());
  for (const ConditionInfo& condition : plan.conditions)
    driver_->check(driver_->cuGraphConditionalHandleCreate(
                       &conditions_[condition.address], graph, plan_->device->context(), condition.default_value,
                       condition.reset_each_launch ? CU_GRAPH_COND_ASSIGN_DEFAULT : 0),
                   "cuGraphConditionalHandleCreate", "create condition", plan.name);

  std::vector<CUgraphNode> before;
  std::vector<CUgraphEdgeData> types;
  auto edge = plan.edges.begin();
  for (const PlanNode& node : plan.nodes) {
    before.clear();
    types.clear();
    for (; edge != plan.edges.end() && edge->to == node.id; ++edge) {
      before.push_back(built.nodes[edge->from]);
      types.push_back(edge_data(edge->type));
      ++(edge->type == EdgeType::full ? stats_.full_edges : stats_.programmatic_edges);
    }
    built.nodes.push_back(node.kind == NodeKind::library ? add_library_node(built, node, before, types)
                                                         : add_node(node, graph, before, types));
  }
  stats_.nodes += plan.nodes.size();
}

CUgraphNode ExplicitGraph::add_node(const PlanNode& node, CUgraph graph, std::span<const CUgraphNode> before,
                                    std::span<const CUgraphEdgeData> types) {
  if (node.kind == NodeKind::child) return add_child(node, graph, before, types);
  if (node.kind == NodeKind::conditional) return add_conditional(node, graph, before, types);
  std::span<const std::byte> arguments = node.arguments;
  std::vector<std::byte> placed;
  if (sets_conditions(node) || !memory_.empty()) arguments = placed = placed_arguments(node);
  ParameterPointers pointers(node, arguments);
  KeptParameters kept;
  CUgraphNodeParams parameters = graph_node_parameters(node, *plan_->device, pointers.get(), memory_, kept);
  CUgraphNode added = nullptr;
  driver_->label(node.name);
  const CUresult result =
      driver_->cuGraphAddNode(&added, graph, before.data(), types.data(), before.size(), &parameters);
  if (result != CUDA_SUCCESS)
    driver_->check(result, "cuGraphAddNode", "add node", node.name,
                   fmt::format("{} of plan '{}', {} edges into it", to_string(node.kind), plan_->name, before.size()));
  if (node.attributes != KernelAttributes{}) set_attributes(node, added);
  note_patched(node);
  if (node.kind == NodeKind::allocate) memory_.place(node.allocated, node.uses[0].bytes, parameters.alloc.dptr);
  return added;
}

std::vector<std::byte> ExplicitGraph::placed_arguments(const PlanNode& node) const {
  std::vector<std::byte> arguments(node.arguments.begin(), node.arguments.end());
  replace_conditions(node, arguments, [&](uint64_t address) { return Condition{condition(address), nullptr}; });
  memory_.place_arguments(node, arguments);
  return arguments;
}

CUgraphNode ExplicitGraph::add_library_node(BuiltPlan& built, const PlanNode& node, std::span<const CUgraphNode> before,
                                            std::span<const CUgraphEdgeData> types) {
  if (!library_stream_) library_stream_.emplace(*plan_->device, "capture libraries");
  AddedLibrary added = add_library(node, {.graph = built.graph, .before = before, .types = types}, *library_stream_,
                                   options_.library_form);
  if (added.captured) host_calls_.keep(std::move(*added.captured));
  if (added.built.form == LibraryForm::kernel) ++stats_.library_kernels;
  if (added.built.form == LibraryForm::graph) ++stats_.library_graphs;
  built.libraries[node.id] = std::move(added.built);
  return built.libraries[node.id].node;
}

LibraryForm ExplicitGraph::library_form(NodeId node) const {
  for (const auto& built : built_)
    if (const auto found = built->libraries.find(node.index);
        built->is_of(node.plan) && found != built->libraries.end())
      return found->second.form;
  throw Error({.doing = "look up library node",
               .object = plan_->name,
               .detail = fmt::format("node {} is no library node of this graph", node.index),
               .advice = "pass the id that GraphBuilder::library or product returned"});
}

void ExplicitGraph::set_attributes(const PlanNode& node, CUgraphNode added) const {
  const LaunchAttributes attributes = launch_attributes(node.attributes);
  for (unsigned i = 0; i < attributes.count; ++i)
    driver_->check(driver_->cuGraphKernelNodeSetAttribute(added, attributes.list[i].id, &attributes.list[i].value),
                   "cuGraphKernelNodeSetAttribute", "set attribute of node", node.name,
                   fmt::format("attribute {} of plan '{}'", static_cast<int>(attributes.list[i].id), plan_->name));
  if (!node.attributes.device_updatable) return;
  CUlaunchAttributeValue value{};
  value.deviceUpdatableKernelNode.deviceUpdatable = 1;
  driver_->check(
      driver_->cuGraphKernelNodeSetAttribute(added, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value),
      "cuGraphKernelNodeSetAttribute", "let the device update node", node.name);
}

CUgraphDeviceNode ExplicitGraph::device_node(NodeId id) const {
  const BuiltPlan& built = built_plan_of(id);
  const PlanNode& node = built.plan->nodes[id.index];
  if (!node.attributes.device_updatable)
    throw Error({.doing = "find the device's handle of node",
                 .object = node.name,
                 .detail = "its attributes do not say that the device may update it",
                 .advice = "launch it with KernelAttributes::device_updatable"});
  CUlaunchAttributeValue value{};
  driver_->check(driver_->cuGraphKernelNodeGetAttribute(built.nodes[node.id],
                                                        CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value),
                 "cuGraphKernelNodeGetAttribute", "find the device's handle of node", node.name);
  return value.deviceUpdatableKernelNode.devNode;
}

CUgraphNode ExplicitGraph::add_child(const PlanNode& node, CUgraph graph, std::span<const CUgraphNode> before,
                                     std::span<const CUgraphEdgeData> types) {
  CUgraph inner = nullptr;
  driver_->check(driver_->cuGraphCreate(&inner, 0), "cuGraphCreate", "create child graph", node.name);
  GraphHandle owned(*driver_, inner);
  const size_t index = built_.size();
  const bool around = std::exchange(inside_clone_, inside_clone_ || !node.patchable_inside);
  try {
    add_nodes(node.bodies[0], inner);
  } catch (...) {
    inside_clone_ = around;
    throw;
  }
  inside_clone_ = around;
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = inner;
  set_moved(parameters.graph, node.patchable_inside);
  CUgraphNode added = nullptr;
  driver_->label(node.name);
  driver_->check(driver_->cuGraphAddNode(&added, graph, before.data(), types.data(), before.size(), &parameters),
                 "cuGraphAddNode", "add node", node.name,
                 fmt::format("child plan '{}' of plan '{}'", node.bodies[0]->name, plan_->name));
  if (node.patchable_inside) {
    owned.release();
    if (!inside_clone_) kept_.retain(*node.bodies[0], inner, KeptInside::bodies);
    return added;
  }
  // The driver made a copy, whose nodes have other handles.
  CUgraph copy = nullptr;
  driver_->check(driver_->cuGraphChildGraphNodeGetGraph(added, &copy), "cuGraphChildGraphNodeGetGraph",
                 "read child graph", node.name);
  for (size_t i = index; i < built_.size(); ++i) {
    built_[i]->nodes.clear();
    built_[i]->graph = nullptr;
  }
  built_[index]->graph = copy;
  if (!inside_clone_) kept_.retain(*node.bodies[0], copy, KeptInside::bodies_and_children);
  return added;
}

CUgraphNode ExplicitGraph::add_conditional(const PlanNode& node, CUgraph graph, std::span<const CUgraphNode> before,
                                           std::span<const CUgraphEdgeData> types) {
  const auto type_of = [](ConditionalKind kind) {
    switch (kind) {
      case ConditionalKind::if_:
        return CU_GRAPH_COND_TYPE_IF;
      case ConditionalKind::while_:
        return CU_GRAPH_COND_TYPE_WHILE;
      case ConditionalKind::switch_:
        break;
    }
    return CU_GRAPH_COND_TYPE_SWITCH;
  };
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = condition(node.condition);
  parameters.conditional.type = type_of(node.conditional);
  parameters.conditional.size = static_cast<unsigned>(node.bodies.size());
  parameters.conditional.ctx = plan_->device->context();
  CUgraphNode added = nullptr;
  driver_->label(node.name);
  driver_->check(
      driver_->cuGraphAddNode(&added, graph, before.data(), types.data(), before.size(), &parameters), "cuGraphAddNode",
      "add node", node.name,
      fmt::format("{} with {} bodies, of plan '{}'", to_string(node.conditional), node.bodies.size(), plan_->name));
  for (size_t i = 0; i < node.bodies.size(); ++i) add_nodes(node.bodies[i], parameters.conditional.phGraph_out[i]);
  return added;
}

std::string ExplicitGraph::name_of(CUgraphNode node) const {
  for (const auto& built : built_) {
    const auto found = std::find(built->nodes.begin(), built->nodes.end(), node);
    if (found != built->nodes.end()) return built->plan->nodes[static_cast<size_t>(found - built->nodes.begin())].name;
  }
  return "?";
}

ContextGuard ExplicitGraph::guard_for(const Stream& stream) const {
  check_stream(*plan_, stream, "launch graph");
  return ContextGuard(*plan_->device);
}

void ExplicitGraph::upload(const Stream& stream) {
  const ContextGuard current = guard_for(stream);
  Stopwatch watch;
  driver_->check(driver_->cuGraphUpload(exec_.get(), stream.get()), "cuGraphUpload", "upload graph", plan_->name);
  stats_.upload_ms = watch.lap_ms();
  needs_upload_ = nullptr;
}

void replace(std::unique_ptr<ExplicitGraph>& exec, Plan plan, GraphBudget* budget) {
  if (exec != nullptr) {
    const Device& device = *exec->plan().device;
    exec.reset();
    device.driver().check(device.driver().cuDeviceGraphMemTrim(device.get()), "cuDeviceGraphMemTrim", "replace graph",
                          plan.name);
  }
  exec = std::make_unique<ExplicitGraph>(std::move(plan), budget);
}

ExplicitGraph GraphBuilder::instantiate(EdgePolicy policy) && { return ExplicitGraph(std::move(*this).finish(policy)); }

void ExplicitGraph::launch(const Stream& stream) {
  const ContextGuard current = guard_for(stream);
  if (needs_upload_ != nullptr)
    throw Error({.doing = "launch graph",
                 .object = plan_->name,
                 .detail = fmt::format("the device may update node '{}', which was built or patched and not uploaded",
                                       needs_upload_->name),
                 .advice = "call ExplicitGraph::upload first"});
  host_calls_.before_launch();
  buffers_.check(*plan_);
  driver_->check(driver_->cuGraphLaunch(exec_.get(), stream.get()), "cuGraphLaunch", "launch graph", plan_->name);
  left_.note_launch();
}

void ExplicitGraph::run() {
  if (!own_stream_) own_stream_.emplace(*plan_->device, plan_->name);
  if (needs_upload_ != nullptr) upload(*own_stream_);
  launch(*own_stream_);
  own_stream_->synchronize();
}

}  // namespace nodewright
