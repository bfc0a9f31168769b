// The nodes of GraphBuilder that have no argument struct of their own: functions of the host, calls of libraries,
// events, child plans, and conditional nodes with their bodies.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/builder_state.h"
#include "graph/edges/nested_uses.h"
#include "graph/nodes/graph_handle.h"
#include "graph/nodes/library_nodes.h"
#include "runtime/calls/child_ownership.h"
#include "runtime/context_guard.h"
#include "runtime/event.h"

namespace nodewright {
namespace {

// The driver's rule for bodies (CUDA driver API, "Conditional nodes").
bool allowed_in_body(const PlanNode& node) {
  switch (node.kind) {
    case NodeKind::memcpy:
      return !node.copy.touches_array();
    case NodeKind::kernel:
    case NodeKind::memset:
    case NodeKind::empty:
    case NodeKind::child:
    case NodeKind::conditional:
    case NodeKind::library:
      return true;
    case NodeKind::host:
    case NodeKind::event_record:
    case NodeKind::event_wait:
    case NodeKind::allocate:
    case NodeKind::free:
    case NodeKind::values:
    case NodeKind::semaphore_signal:
    case NodeKind::semaphore_wait:
    case NodeKind::other:
      break;
  }
  return false;
}

std::string describe_kind(const PlanNode& node) {
  if (node.kind == NodeKind::memcpy && node.copy.touches_array()) return "a copy to or from an array";
  return fmt::format("a node of kind {}", to_string(node.kind));
}

// The first node of the plan, or of a child in it, for which `matches` holds.
template <class Predicate>
const PlanNode* find_node(const Plan& plan, const Predicate& matches) {
  for (const PlanNode& node : plan.nodes) {
    if (matches(node)) return &node;
    if (node.kind != NodeKind::child) continue;
    if (const PlanNode* inner = find_node(*node.bodies[0], matches)) return inner;
  }
  return nullptr;
}

// The names of a plan and of the plans inside it.
void collect_names(const Plan& plan, std::vector<std::string_view>& names) {
  names.push_back(plan.name);
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies) collect_names(*body, names);
}

}  // namespace

// A body knows the outer plan's buffers and nothing of what they hold: that is checked where its node is added.
GraphBuilder::State::State(const State& outer, std::string name)
    : State(*outer.plan_.device, std::move(name), outer.plan_.facts) {
  is_body_ = true;
  outer_ = &outer;
}

void GraphBuilder::State::check_allowed_in_body(const PlanNode& node) const {
  if (!is_body_ || allowed_in_body(node)) return;
  refuse(node, fmt::format("a conditional node's body cannot hold {}", describe_kind(node)),
         "move it before or after the conditional node; bodies hold kernels, copies, fills, empty nodes, libraries, "
         "children and conditionals");
}

AddressedUse GraphBuilder::State::declared_use(const PlanNode& node, const DeclaredUse& use, size_t place) const {
  const std::string_view field = kept_name(use.field.empty() ? std::to_string(place) : use.field);
  if (use.range.weight && writes(use.access))
    refuse(node, fmt::format("'{}' is written, and given as a weight", field), "pass a view");
  if (use.range.bytes == 0)
    refuse(node, fmt::format("'{}' ({}) is empty", field, to_string(use.access)),
           "pass a view of a declared buffer, or leave the use out");
  return {field, use.range.address, use.range.bytes, use.access, use.align_bytes};
}

NodeId GraphBuilder::host(std::string_view name, std::function<void()> function, const std::vector<DeclaredUse>& uses,
                          const NodeOptions& options) {
  PlanNode node = state_->new_node(name, NodeKind::host);
  if (!function) state_->refuse(node, "it has no function", "pass what is to be called");
  std::vector<AddressedUse> addressed;
  for (const DeclaredUse& use : uses) {
    addressed.push_back(state_->declared_use(node, use, addressed.size()));
    if (!use.range.host)
      state_->refuse(node, fmt::format("'{}' is device memory, which the host cannot touch", addressed.back().field),
                     "copy it to pinned memory first");
  }
  node.host = std::make_shared<HostCall>();
  node.host->node_name = node.name;
  node.host->function = std::move(function);
  return state_->add(std::move(node), addressed, options);
}

NodeId GraphBuilder::library(std::string_view name, const std::vector<DeclaredUse>& uses,
                             std::function<void(CUstream)> submit, std::function<void()> stand_in,
                             const NodeOptions& options) {
  return library(name, uses, {.submit = std::move(submit), .stand_in = std::move(stand_in)}, options);
}

NodeId GraphBuilder::library(std::string_view name, const std::vector<DeclaredUse>& uses, LibraryCall call,
                             const NodeOptions& options) {
  PlanNode node = state_->new_node(name, NodeKind::library);
  if (!call.submit) state_->refuse(node, "it has no call", "pass a function that submits to the stream it is given");
  if (state_->plan_.device->driver().is_cpu() && call.stand_in) {
    node.host = std::make_shared<HostCall>();
    node.host->node_name = node.name;
    node.host->function = call.stand_in;
  }
  node.library = std::make_shared<const LibraryCall>(std::move(call));
  std::vector<AddressedUse> addressed;
  for (const DeclaredUse& use : uses) addressed.push_back(state_->declared_use(node, use, addressed.size()));
  return state_->add(std::move(node), addressed, options);
}

NodeId GraphBuilder::record_event(std::string_view name, const Event& event, const std::vector<DeclaredUse>& uses,
                                  const NodeOptions& options) {
  return state_->add_event(name, NodeKind::event_record, event, uses, options);
}

NodeId GraphBuilder::wait_event(std::string_view name, const Event& event, const std::vector<DeclaredUse>& uses,
                                const NodeOptions& options) {
  return state_->add_event(name, NodeKind::event_wait, event, uses, options);
}

NodeId GraphBuilder::State::add_event(std::string_view name, NodeKind kind, const Event& event,
                                      const std::vector<DeclaredUse>& uses, const NodeOptions& options) {
  PlanNode node = new_node(name, kind);
  if (event.get() == nullptr) refuse(node, "the event was moved away", "keep the event where it is");
  // Another device's event may be waited for (CUDA driver API, cuGraphAddEventWaitNode), and not recorded.
  if (kind == NodeKind::event_record && event.device().context() != plan_.device->context())
    refuse(node,
           fmt::format("event '{}' is of {}, and the plan is for {}", event.name(), describe_device(event.device()),
                       describe_device(*plan_.device)),
           "record an event that was made on the plan's device");
  node.event = event.get();
  std::vector<AddressedUse> addressed;
  add_met_uses(node, uses, kind == NodeKind::event_wait, kind == NodeKind::event_record, addressed);
  return add(std::move(node), addressed, options, Traffic{});
}

ChildNode GraphBuilder::child(std::string_view name, Plan plan, ChildOwnership ownership, const NodeOptions& options) {
  PlanNode node = state_->new_node(name, NodeKind::child);
  check_plan(plan);
  if (plan.device != state_->plan_.device)
    state_->refuse(node,
                   fmt::format("its plan was made for another device, {}, than this one's, {}",
                               describe_device(*plan.device), describe_device(*state_->plan_.device)),
                   "build both for one device");
  if (ownership == ChildOwnership::moved && !kChildrenMove)
    state_->refuse(node, "this build has the headers of CUDA 12, with which children are cloned alone",
                   "say ChildOwnership::cloned, or build with those of CUDA 13");
  const auto conditional = [](const PlanNode& inner) { return inner.kind == NodeKind::conditional; };
  if (const PlanNode* inner = find_node(plan, conditional))
    state_->refuse(node,
                   fmt::format("node '{}' of plan '{}' is conditional, and a child graph cannot hold conditional nodes",
                               inner->name, plan.name),
                   "put the conditional node at the top level, or the child's nodes here");
  const auto updatable = [](const PlanNode& inner) { return inner.attributes.device_updatable; };
  if (const PlanNode* inner = find_node(plan, updatable))
    state_->refuse(node,
                   fmt::format("the device may update node '{}' of plan '{}', which a child graph cannot have",
                               inner->name, plan.name),
                   "add that kernel to this plan");
  const auto allocates = [](const PlanNode& inner) { return inner.kind == NodeKind::allocate; };
  if (const PlanNode* inner = find_node(plan, allocates))
    state_->refuse(
        node,
        fmt::format("node '{}' of plan '{}' allocates memory, which a child graph cannot", inner->name, plan.name),
        "allocate in this plan, and declare Allocation::range() in the child's");
  const auto foreign = [](const PlanNode& inner) { return !allowed_in_body(inner); };
  if (const PlanNode* inner = state_->is_body_ ? find_node(plan, foreign) : nullptr)
    state_->refuse(node,
                   fmt::format("node '{}' of plan '{}' is {}, which a conditional node's body cannot hold", inner->name,
                               plan.name, describe_kind(*inner)),
                   "move it out of the body");
  std::vector<std::string_view> taken, brought;
  collect_names(state_->plan_, taken);
  collect_names(plan, brought);
  std::ranges::sort(taken);
  for (const std::string_view name : brought)
    if (std::ranges::binary_search(taken, name))
      state_->refuse(node, fmt::format("it brings a plan named '{}', and one is there already", name),
                     "give each plan a name of its own: patches find a node by its plan's name");
  node.patchable_inside = ownership == ChildOwnership::moved;
  Traffic traffic;
  for (const PlanNode& inner : plan.nodes) {
    traffic.bytes_read += inner.traffic.bytes_read;
    traffic.bytes_written += inner.traffic.bytes_written;
  }
  const auto body = std::make_shared<const Plan>(std::move(plan));
  const Plan* const bodies[] = {body.get()};
  std::vector<AddressedUse> uses;
  for (const NestedUse& use : nested_uses(bodies, false))
    uses.push_back({use.field, use.begin, use.end - use.begin, use.access(), 1});
  node.bodies.push_back(body);
  return {state_->add(std::move(node), uses, options, traffic)};
}

ConditionHandle GraphBuilder::condition(std::string_view name, uint32_t default_value, bool reset_each_launch) {
  const uint64_t first = conditions_address(state_->plan_.name),
                 most = (loops_address(state_->plan_.name) - first) / (2 * kConditionBytes);
  const uint64_t address =
      state_->plan_.conditions.empty() ? first : state_->plan_.conditions.back().address + 2 * kConditionBytes;
  if (address >= first + most * 2 * kConditionBytes)
    throw Error({.doing = "make condition",
                 .object = std::string(name),
                 .detail = fmt::format("plan '{}' has {} conditions, and no plan has more", state_->plan_.name, most),
                 .advice = "put some of the conditional nodes into a plan of their own"});
  state_->declare({std::string(name), address, kConditionBytes, "condition"}, {.live_in = true});
  state_->declare({"loops of " + state_->plan_.name, loops_address(state_->plan_.name), kConditionBytes, "order"},
                  {.live_in = true});
  state_->plan_.conditions.push_back({address, default_value, reset_each_launch});
  state_->obeyed_by_.push_back(State::kNone);
  return {address};
}

// An edit that removes a conditional node leaves a gap between the addresses.
size_t GraphBuilder::State::condition_index(uint64_t address) const {
  const auto found = std::ranges::lower_bound(plan_.conditions, address, {}, &ConditionInfo::address);
  const bool is_own = found != plan_.conditions.end() && found->address == address;
  return is_own ? static_cast<size_t>(found - plan_.conditions.begin()) : plan_.conditions.size();
}

NodeId GraphBuilder::if_else(std::string_view name, ConditionHandle condition, const Body& then, const Body& otherwise,
                             const NodeOptions& options) {
  const Body bodies[] = {then, otherwise};
  return state_->add_conditional(name, ConditionalKind::if_, condition, {bodies, otherwise ? size_t{2} : size_t{1}},
                                 options);
}

NodeId GraphBuilder::while_loop(std::string_view name, ConditionHandle condition, const Body& body,
                                const NodeOptions& options) {
  return state_->add_conditional(name, ConditionalKind::while_, condition, {&body, 1}, options);
}

NodeId GraphBuilder::switch_case(std::string_view name, ConditionHandle condition, const std::vector<Body>& bodies,
                                 const NodeOptions& options) {
  return state_->add_conditional(name, ConditionalKind::switch_, condition, bodies, options);
}

NodeId GraphBuilder::State::add_conditional(std::string_view name, ConditionalKind kind, ConditionHandle condition,
                                            std::span<const Body> bodies, const NodeOptions& options) {
  PlanNode node = new_node(name, NodeKind::conditional);
  const size_t own = condition_index(condition.address);
  if (own == plan_.conditions.size())
    refuse(node, fmt::format("its condition is not one of the {} of plan '{}'", plan_.conditions.size(), plan_.name),
           "make the condition with the builder that adds the node");
  if (obeyed_by_[own] != kNone)
    refuse(node, fmt::format("node '{}' obeys its condition already", plan_.nodes[obeyed_by_[own]].name),
           "make a condition for each node");
  if (bodies.empty()) refuse(node, "it has no body", "pass at least one body");
  const uint32_t obeyed = buffer_below(condition.address);
  const std::string condition_name = plan_.buffers[obeyed].range.name;  // bodies may declare more buffers
  if (!plan_.conditions[own].reset_each_launch && !buffer_states_[obeyed].written)
    refuse(node,
           fmt::format("its condition '{}' is not reset at each launch, so that it is undefined at the start, and no "
                       "earlier node sets it",
                       condition_name),
           "set it in a kernel before the node, or let launches reset it to its default");

  PendingBodies pending{static_cast<uint32_t>(plan_.nodes.size()), {}};
  std::vector<const Plan*> plans;
  bool has_inner = false;  // conditional nodes in a body
  bool nests = false;      // loops_nest_ of a body
  for (size_t i = 0; i < bodies.size(); ++i) {
    if (!bodies[i]) refuse(node, fmt::format("body {} is no function", i), "pass a function that adds the nodes");
    GraphBuilder builder(
        std::make_unique<State>(*this, fmt::format("{}/{}.{}", plan_.name, node.name, body_name(kind, i))));
    State* const body = builder.state_.get();
    if (kind == ConditionalKind::while_) {
      body->loop_around_ = loops_address(plan_.name);
      body->declare_outer_buffer(body->loop_around_, kConditionBytes);
    }
    bodies[i](builder);
    if (plan_.nodes.size() != node.id)
      refuse(node, fmt::format("its body added node '{}' to plan '{}' around it", plan_.nodes.back().name, plan_.name),
             "add a body's nodes to the builder that its function is given");
    has_inner |= !body->plan_.conditions.empty();
    nests |= body->loops_nest_;
    plans.push_back(&body->plan_);
    pending.bodies.push_back(std::move(builder.state_));
  }
  node.conditional = kind;
  node.condition = condition.address;
  std::vector<AddressedUse> uses;
  bool obeyed_is_set = false, has_loop = kind == ConditionalKind::while_;
  for (const NestedUse& use : nested_uses(plans, true)) {
    uses.push_back({use.field, use.begin, use.end - use.begin, use.access(), 1});
    obeyed_is_set |= use.begin <= condition.address && condition.address < use.end;
    has_loop |= use.writes && std::any_of(plans.begin(), plans.end(),
                                          [&](const Plan* body) { return use.begin == loops_address(body->name); });
  }
  if (kind == ConditionalKind::while_ && !obeyed_is_set)
    refuse(node,
           fmt::format("nothing in its body sets its condition '{}': it would not run, or never end", condition_name),
           "set the condition in a kernel of the body");
  if (!obeyed_is_set) uses.push_back({kConditionField, condition.address, kConditionBytes, Access::in, 1});
  // A body's own conditions are nobody else's business.
  std::erase_if(uses, [&](const AddressedUse& use) {
    return use.address >= kConditionBase && known_buffer(use.address, use.bytes) == nullptr;
  });
  uses.push_back({kLoopsField, loops_address(plan_.name), kConditionBytes, has_loop ? Access::inout : Access::in, 1});
  const NodeId id = add(std::move(node), uses, options, Traffic{});
  obeyed_by_[own] = id.index;
  loops_nest_ |= nests || (has_loop && has_inner);
  pending_bodies_.push_back(std::move(pending));
  return id;
}

}  // namespace nodewright
