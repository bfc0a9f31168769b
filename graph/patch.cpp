#include "graph/patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/change/exec_parameters.h"
#include "graph/change/kernel_change.h"
#include "graph/change/patch_rules.h"
#include "graph/foreign/stray_pointers.h"
#include "graph/nodes/launch_rules.h"

namespace nodewright {
namespace {

const FieldInfo& field_at(const PlanNode& node, size_t offset, size_t bytes) {
  for (const FieldInfo& field : node.fields)
    if (field.offset == offset && field.bytes == bytes) return field;
  refuse_patch(node, fmt::format("it has no field of {} bytes at offset {}", bytes, offset), "");
}

void check_within_envelope(const Plan& plan, const PlanNode& node, const ArgumentUse& wanted) {
  if (wanted.count == 0) return;
  const auto refuse = [&](std::string detail) {
    refuse_patch(node,
                 fmt::format("field '{}' to {} elements of {} bytes at {:#x}: {}", wanted.field, wanted.count,
                             wanted.element_bytes, wanted.address, detail),
                 "build the node with an envelope that contains the new range");
  };
  const Use* use = use_of(node, wanted.field);
  if (use == nullptr) refuse("it was empty when the node was built");
  const uint64_t begin = plan.buffers[use->buffer].range.address + use->offset;
  if (wanted.address % wanted.align_bytes != 0) refuse("not aligned to its element");
  if (wanted.address < begin || wanted.address - begin > use->bytes ||
      wanted.count > (use->bytes - (wanted.address - begin)) / wanted.element_bytes)
    refuse(fmt::format("outside its envelope {}, {:#x} + {} bytes",
                       describe_range(plan, use->buffer, use->offset, use->bytes), begin, use->bytes));
}

// No address but those of the uses.
void check_pointers(const Plan& plan, const PlanNode& node, const FieldInfo& field, const void* value,
                    std::span<const ArgumentUse> uses, bool foreign) {
  const auto declared = [&](uint64_t address) -> const NamedRange* {
    for (const Buffer& buffer : plan.buffers)
      if (address - buffer.range.address < buffer.range.bytes) return &buffer.range;
    return nullptr;
  };
  const auto place = static_cast<size_t>(&field - node.fields.data());
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(value), field.bytes);
  if (auto stray = find_stray_pointer(*plan.device, field, place, bytes, uses, foreign, declared))
    refuse_patch(node, std::move(stray->detail), std::move(stray->advice));
}

void check_not_condition(const PlanNode& node, const FieldInfo& field) {
  if (field.role == Role::condition)
    refuse_patch(node, fmt::format("field '{}' is a condition, which its conditional node holds", field.name),
                 "let the kernel set another value");
}

void check_field_value(const Plan& plan, const PlanNode& node, const FieldInfo& field, const void* value) {
  check_not_condition(node, field);
  if (field.role == Role::exchange_number)
    refuse_patch(node, fmt::format("field '{}' is the number of an exchange, which its peers count on", field.name),
                 "build the team's plans anew");
  if (!is_memory(field.role)) return check_pointers(plan, node, field, value, {}, false);
  RoleField wanted;
  std::memcpy(&wanted, value, sizeof wanted);
  if (wanted.count == 0 && !field.optional)
    refuse_patch(node, fmt::format("field '{}' would be empty", field.name),
                 "pass a view, or make the field Optional if the kernel does without");
  check_within_envelope(plan, node,
                        {.field = field.name,
                         .address = wanted.address,
                         .count = wanted.count,
                         .element_bytes = field.element_bytes,
                         .align_bytes = field.element_bytes});
}

// The node is a kernel whose arguments have these fields, of the very struct or of the very types.
void check_fields(const PlanNode& node, std::span<const FieldInfo> fields) {
  if (node.kind == NodeKind::kernel && node.fields.data() == fields.data()) return;
  const auto same = [](const FieldInfo& a, const FieldInfo& b) {
    return a.name == b.name && a.offset == b.offset && a.bytes == b.bytes && a.role == b.role && a.element == b.element;
  };
  if (node.kind != NodeKind::kernel ||
      !std::equal(node.fields.begin(), node.fields.end(), fields.begin(), fields.end(), same))
    refuse_patch(node, fmt::format("it is of kind {} and has other arguments", to_string(node.kind)),
                 "pass what launch() of this plan's builder returned");
}

// The argument that a foreign node's handle names, with its uses within those it was built with and with no other
// address in its value.
const FieldInfo& check_argument(const Plan& plan, const PlanNode& node, std::span<const FieldInfo> fields, size_t index,
                                const void* value, std::span<const ArgumentUse> uses) {
  check_fields(node, fields);
  const FieldInfo& field = node.fields[index];
  check_not_condition(node, field);
  for (const ArgumentUse& use : uses) {
    if (use.count == 0 && !use.opaque)
      refuse_patch(node, fmt::format("argument '{}' would be empty", use.field), "pass a view");
    check_within_envelope(plan, node, use);
  }
  check_pointers(plan, node, field, value, uses, true);
  return field;
}

// What a fill does while it is switched off. Of several rows the driver changes the address alone.
FillParameters aside(FillParameters fill, uint64_t spare) {
  fill.to = spare;
  if (fill.rows == 1) fill.count = 1;
  return fill;
}

uint64_t reach_bytes(const FillParameters& fill) {
  return (fill.rows - 1) * fill.pitch + fill.count * fill.element_bytes;
}

}  // namespace

BuiltPlan& ExplicitGraph::built_plan_of(NodeId node) const {
  const auto found = std::find_if(built_.begin(), built_.end(), [&](const auto& b) { return b->is_of(node.plan); });
  const auto refuse = [&](std::string detail, std::string advice) {
    throw Error(
        {.doing = "patch graph", .object = plan_->name, .detail = std::move(detail), .advice = std::move(advice)});
  };
  if (found == built_.end() || node.index >= (*found)->plan->nodes.size())
    refuse(fmt::format("node {} belongs to another plan; this one has {} nodes and {} plans inside", node.index,
                       plan_->nodes.size(), built_.size() - 1),
           "pass what this plan's builder returned");
  BuiltPlan& built = **found;
  if (built.nodes.empty())
    refuse(fmt::format("node '{}' is inside the child plan '{}', which was cloned", built.plan->nodes[node.index].name,
                       built.plan->name),
           "add the child with ChildOwnership::moved, or patch it as a whole with patch_child");
  return built;
}

BuiltPlan::NodeState& ExplicitGraph::state_of(BuiltPlan& built, const PlanNode& node, const ExplicitGraph& exec) {
  std::unique_ptr<BuiltPlan::NodeState>& state = built.states[node.id];
  if (state == nullptr) {
    state = std::make_unique<BuiltPlan::NodeState>();
    state->arguments = exec.placed_arguments(node);
    state->kernel = node.kernel;
    state->waits_for_inputs = node.waits_for_inputs;
    state->shape = node.shape;
    state->copy = exec.memory_.placed(node.copy);
    state->fill = exec.memory_.placed(node.fill);
    state->values = node.values;
    state->host = node.host;
    state->event = node.event;
  }
  return *state;
}

// The path that decode loops and benchmarks take: no allocation but the first time a node is patched.
void ExplicitGraph::patch_field(NodeId id, std::span<const FieldInfo> fields, size_t offset, const void* value,
                                size_t bytes) {
  BuiltPlan& built = built_plan_of(id);
  const PlanNode& node = built.plan->nodes[id.index];
  check_fields(node, fields);
  const FieldInfo& field = field_at(node, offset, bytes);
  check_field_value(*built.plan, node, field, value);
  set_argument_bytes(built, node, field, value);
}

void ExplicitGraph::patch_argument(NodeId id, std::span<const FieldInfo> fields, size_t index, const void* value,
                                   std::span<const ArgumentUse> uses) {
  BuiltPlan& built = built_plan_of(id);
  const PlanNode& node = built.plan->nodes[id.index];
  set_argument_bytes(built, node, check_argument(*built.plan, node, fields, index, value, uses), value);
}

void ExplicitGraph::set_argument_bytes(BuiltPlan& built, const PlanNode& node, const FieldInfo& field,
                                       const void* value) {
  BuiltPlan::NodeState& state = state_of(built, node, *this);
  std::byte* held = state.arguments.data() + field.offset;
  std::array<std::byte, 64> few;
  std::vector<std::byte> many(field.bytes <= few.size() ? 0 : field.bytes);
  std::byte* before = many.empty() ? few.data() : many.data();
  std::memcpy(before, held, field.bytes);
  std::memcpy(held, value, field.bytes);
  if (!memory_.empty()) memory_.place_field(field, held);
  const ContextGuard current(*plan_->device);
  const CUresult result =
      set_exec_parameters(*driver_, exec_.get(), plan_->device->context(), built.handle(node.id), node, state);
  note_patched(node);
  if (result == CUDA_SUCCESS) return;
  std::memcpy(held, before, field.bytes);
  driver_->check(result, "cuGraphExecKernelNodeSetParams", "patch node", node.name,
                 fmt::format("field '{}'", field.name));
}

void ExplicitGraph::patch_kernel(NodeId id, std::span<const FieldInfo> fields, const KernelChange& kernel,
                                 const LaunchShape& shape) {
  BuiltPlan& built = built_plan_of(id);
  const PlanNode& node = built.plan->nodes[id.index];
  check_fields(node, fields);
  check_kernel_change(*built.plan, node, kernel, shape);
  BuiltPlan::NodeState& state = state_of(built, node, *this);
  const LaunchShape shape_before = std::exchange(state.shape, shape);
  const LoadedKernel* kernel_before = std::exchange(state.kernel, kernel.kernel);
  const ContextGuard current(*plan_->device);
  const CUresult result =
      set_exec_parameters(*driver_, exec_.get(), plan_->device->context(), built.handle(node.id), node, state);
  note_patched(node);
  if (result == CUDA_SUCCESS) {
    state.waits_for_inputs = kernel.waits_for_inputs;
    return;
  }
  state.shape = shape_before;
  state.kernel = kernel_before;
  driver_->check(result, exec_entry_of(node), "patch node", node.name,
                 fmt::format("kernel '{}' in the place of '{}'", kernel.kernel->name, kernel_before->name),
                 kKernelChangeRules);
}

PatchSet::Change& PatchSet::change_of(NodeId id) {
  BuiltPlan& built = exec_->built_plan_of(id);
  check_not_updated();
  updates_ = exec_->updates_;
  const auto known = indices_.find({&built, id.index});
  if (known != indices_.end()) return changes_[known->second];
  Change& change = changes_.emplace_back();
  change.built = &built;
  change.node = id.index;
  indices_.emplace(std::pair(&built, id.index), changes_.size() - 1);
  return change;
}

const PlanNode& PatchSet::node_of(NodeId id, std::initializer_list<NodeKind> kinds, std::string_view what) const {
  const PlanNode& node = exec_->built_plan_of(id).plan->nodes[id.index];
  if (std::find(kinds.begin(), kinds.end(), node.kind) == kinds.end())
    refuse_patch(node, fmt::format("a node of kind {} has no {}", to_string(node.kind), what), "");
  return node;
}

void PatchSet::set_field(NodeId id, std::span<const FieldInfo> fields, size_t offset, const void* value, size_t bytes) {
  const BuiltPlan& built = exec_->built_plan_of(id);
  const PlanNode& node = built.plan->nodes[id.index];
  check_fields(node, fields);
  const FieldInfo& field = field_at(node, offset, bytes);
  check_field_value(*built.plan, node, field, value);
  set_bytes(id, field, value);
}

void PatchSet::set_argument(NodeId id, std::span<const FieldInfo> fields, size_t index, const void* value,
                            std::span<const ArgumentUse> uses) {
  const BuiltPlan& built = exec_->built_plan_of(id);
  set_bytes(id, check_argument(*built.plan, built.plan->nodes[id.index], fields, index, value, uses), value);
}

void PatchSet::set_bytes(NodeId id, const FieldInfo& field, const void* value) {
  Change& change = change_of(id);
  const auto* first = static_cast<const std::byte*>(value);
  std::erase_if(change.fields, [&](const Change::FieldBytes& bytes) { return bytes.offset == field.offset; });
  change.fields.push_back({field.offset, std::vector<std::byte>(first, first + field.bytes)});
  exec_->memory().place_field(field, change.fields.back().bytes.data());
}

void PatchSet::set_kernel(NodeId id, std::span<const FieldInfo> fields, const KernelChange& kernel,
                          const LaunchShape& shape) {
  const BuiltPlan& built = exec_->built_plan_of(id);
  const PlanNode& node = built.plan->nodes[id.index];
  check_fields(node, fields);
  check_kernel_change(*built.plan, node, kernel, shape);
  Change& change = change_of(id);
  change.kernel = kernel;
  change.shape = shape;
}

void PatchSet::shape(NodeId id, const LaunchShape& shape) {
  const PlanNode& node = node_of(id, {NodeKind::kernel}, "launch shape");
  const LoadedKernel& kernel = kernel_of(id);
  if (std::string problem = launch_problem(kernel, shape, node.attributes, exec_->plan().device->properties());
      !problem.empty())
    refuse_patch(node, std::move(problem), "change the launch shape");
  if (std::string problem = shared_problem(kernel, shape); !problem.empty())
    refuse_patch(node, std::move(problem), std::string(kAllowShared));
  change_of(id).shape = shape;
}

// The kernel that the node will have: of this set, of an earlier patch, or as it was built.
const LoadedKernel& PatchSet::kernel_of(NodeId id) const {
  const BuiltPlan& built = exec_->built_plan_of(id);
  const auto known = indices_.find({&built, id.index});
  if (known != indices_.end() && changes_[known->second].kernel) return *changes_[known->second].kernel->kernel;
  const BuiltPlan::NodeState* state = built.states[id.index].get();
  return state != nullptr ? *state->kernel : *built.plan->nodes[id.index].kernel;
}

void PatchSet::enable(NodeId id, bool enabled) {
  const PlanNode& node = node_of(id, {NodeKind::kernel, NodeKind::memcpy, NodeKind::memset}, "switch");
  // Off, it would not wait for the kernel before it, and neither would its successors by full edges: seen by random
  // patches on one H200 (driver 580.159.04, 2026-11-20).
  const Plan& plan = *exec_->built_plan_of(id).plan;
  const auto early = std::find_if(plan.edges.begin(), plan.edges.end(), [&](const Edge& edge) {
    return edge.to == node.id && edge.type == EdgeType::programmatic;
  });
  if (!enabled && early != plan.edges.end())
    refuse_patch(node,
                 fmt::format("the edge from '{}' is programmatic: switched off, the node would not hold that order",
                             plan.nodes[early->from].name),
                 "finish the plan with EdgePolicy::full");
  if (node.kind == NodeKind::memset && !enabled) {
    std::vector<DeviceBuffer>& spares = exec_->spares_;
    const uint64_t bytes = reach_bytes(aside(node.fill, 0));
    if (spares.empty() || spares.back().bytes() < bytes)
      spares.emplace_back(*exec_->plan_->device, "spare of " + exec_->plan_->name, bytes);
  }
  change_of(id).enabled = enabled;
}

// A fill is switched off by letting it write spare memory. A memset node that cuGraphNodeSetEnabled has switched off
// holds no order: on one H200 (driver 580.159.04, 2026-11-20) the node after it read what the node before it had not
// written yet in 19 of 20 launches, and with such a node as its first a graph overtook the launch before it in 20 of
// 20. Kernels and copies that are off hold theirs (0 of 20).
CUresult PatchSet::apply(const Change& change, const BuiltPlan::NodeState& state) const {
  const Driver& driver = *exec_->driver_;
  const CUgraphExec exec = exec_->exec_.get();
  const CUgraphNode handle = change.built->handle(change.node);
  const CUcontext context = exec_->plan_->device->context();
  const PlanNode& node = change.plan_node();
  exec_->note_patched(node);
  if (node.kind == NodeKind::memset) {
    if (state.enabled) return set_exec_parameters(driver, exec, context, handle, node, state);
    BuiltPlan::NodeState beside = state;
    beside.fill = aside(state.fill, exec_->spares_.back().address());
    return set_exec_parameters(driver, exec, context, handle, node, beside);
  }
  CUresult result = CUDA_SUCCESS;
  if (change.sets_parameters()) result = set_exec_parameters(driver, exec, context, handle, node, state);
  if (result == CUDA_SUCCESS && change.enabled)
    result = driver.cuGraphNodeSetEnabled(exec, handle, state.enabled ? 1 : 0);
  return result;
}

BuiltPlan::NodeState PatchSet::state_after(const Change& change) const {
  BuiltPlan::NodeState state = ExplicitGraph::state_of(*change.built, change.plan_node(), *exec_);
  for (const Change::FieldBytes& field : change.fields)
    std::memcpy(state.arguments.data() + field.offset, field.bytes.data(), field.bytes.size());
  if (change.kernel) {
    state.kernel = change.kernel->kernel;
    state.waits_for_inputs = change.kernel->waits_for_inputs;
  }
  state.shape = change.shape.value_or(state.shape);
  state.copy = change.copy.value_or(state.copy);
  if (change.host != nullptr) state.host = change.host;
  state.event = change.event.value_or(state.event);
  state.fill.value = change.fill.value_or(state.fill.value);
  for (const auto& [operation, value] : change.values) state.values[operation].value = value;
  state.enabled = change.enabled.value_or(state.enabled);
  state.was_off |= !state.enabled;
  return state;
}

// Changes were checked against the ranges of the plan as it was.
void PatchSet::check_not_updated() const {
  if (changes_.empty() || updates_ == exec_->updates_) return;
  throw Error({.doing = "patch graph",
               .object = exec_->plan().name,
               .detail = fmt::format("the set has {} changes from before the graph was updated", changes_.size()),
               .advice = "begin another set after the update"});
}

void PatchSet::apply() {
  check_not_updated();
  const ContextGuard current(*exec_->plan().device);
  std::vector<BuiltPlan::NodeState> states;
  for (const Change& change : changes_) {
    states.push_back(state_after(change));
    if (change.host != nullptr) exec_->host_calls_.add(change.host);
  }
  for (size_t done = 0; done < changes_.size(); ++done) {
    const CUresult result = apply(changes_[done], states[done]);
    if (result == CUDA_SUCCESS) continue;
    const PlanNode& refused = changes_[done].plan_node();
    const std::string words = exec_->driver_->words(result, exec_entry_of(refused));
    std::string problems;
    for (size_t i = done + 1; i-- > 0;) {
      const Change& change = changes_[i];
      if (i == done && !(change.sets_parameters() && change.enabled)) continue;  // no half of it has been done
      if (apply(change, ExplicitGraph::state_of(*change.built, change.plan_node(), *exec_)) != CUDA_SUCCESS)
        problems += fmt::format(" '{}'", change.plan_node().name);
    }
    throw Error({.doing = "patch node",
                 .object = refused.name,
                 .detail = fmt::format("change {} of {}: {}; {}", done + 1, changes_.size(), words,
                                       problems.empty() ? "the changes before it were undone"
                                                        : "not undone, so that the graph is unusable:" + problems),
                 .advice = std::string(changes_[done].rules())});
  }
  for (size_t i = 0; i < changes_.size(); ++i) *changes_[i].built->states[changes_[i].node] = std::move(states[i]);
  changes_.clear();
  indices_.clear();
}

}  // namespace nodewright
