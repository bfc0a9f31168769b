#include "graph/edit/plan_replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "graph/builder_state.h"

namespace nodewright {
namespace {

constexpr std::string_view kEditedFact = "edited";

bool ends_node(const EditStep& edit) { return edit.kind == EditKind::replace || edit.kind == EditKind::remove; }

std::string describe_edit(const EditStep& edit, const std::vector<std::string>& added) {
  const std::string names = fmt::format("{}", fmt::join(added, " "));
  switch (edit.kind) {
    case EditKind::before:
      return fmt::format("inserted {} before {}", names, edit.name);
    case EditKind::after:
      return fmt::format("inserted {} after {}", names, edit.name);
    case EditKind::replace:
      return fmt::format("replaced {} by {}", edit.name, names);
    case EditKind::remove:
      break;
  }
  return "removed " + edit.name;
}

}  // namespace

PlanReplay::PlanReplay(std::span<const EditStep> edits, EdgePolicy policy) : edits_(edits), policy_(policy) {
  for (const EditStep& edit : edits_) {
    at_[{edit.plan, edit.node}].push_back(&edit);
    const PlanNode& node = edit.plan->nodes[edit.node];
    if (ends_node(edit) && node.kind == NodeKind::allocate) lost_.insert(node.allocated);
  }
}

Plan PlanReplay::outermost(const Plan& source) {
  GraphBuilder builder(*source.device, source.name, source.facts);
  add_all(builder, source);
  Plan plan = std::move(builder).finish(policy_);
  if (edits_.empty()) return plan;
  std::vector<std::string> lines;
  for (const EditStep& edit : edits_) lines.push_back(describe_edit(edit, added_[&edit]));
  const auto is_edited_fact = [](const auto& fact) { return fact.first == kEditedFact; };
  auto fact = std::find_if(plan.facts.begin(), plan.facts.end(), is_edited_fact);
  if (fact == plan.facts.end()) fact = plan.facts.insert(fact, {std::string(kEditedFact), ""});
  fact->second += fmt::format("{}{}", fact->second.empty() ? "" : "; ", fmt::join(lines, "; "));
  return plan;
}

void PlanReplay::add_all(GraphBuilder& builder, const Plan& source) {
  builder.reserve(source.nodes.size() + edits_.size());
  builder.state_->plan_.kept = source.kept;
  declare_buffers(builder, source);
  add_conditions(builder, source);
  PlanEdit::Moved& moved = moved_[source.id];
  moved.plan = builder.state_->plan_.id;
  moved.nodes.assign(source.nodes.size(), PlanEdit::kGone);
  Progress at{source, builder, std::vector<std::vector<uint32_t>>(source.nodes.size())};
  for (const PlanNode& node : source.nodes) {
    std::vector<NodeId> after;
    std::vector<uint32_t> followed;
    for (; at.next_order < source.after.size() && source.after[at.next_order].node == node.id; ++at.next_order)
      for (const uint32_t id : at.stand_ins[source.after[at.next_order].earlier]) followed.push_back(id);
    for (const uint32_t id : followed) after.push_back({id, builder.state_->plan_.id});

    const auto found = at_.find({&source, node.id});
    const std::vector<const EditStep*> none, &edits = found == at_.end() ? none : found->second;
    for (const EditStep* edit : edits)
      if (edit->kind == EditKind::before) call(builder, *edit);
    const EditStep* end = end_of(source, node.id);
    if (end == nullptr) {
      const NodeId kept = add_kept(at, node, after);
      at.stand_ins[node.id] = {kept.index};
      moved_[source.id].nodes[node.id] = kept.index;
    } else if (end->kind == EditKind::remove) {
      at.stand_ins[node.id] = std::move(followed);
    } else {
      builder.state_->also_after_ = std::move(followed);
      at.stand_ins[node.id] = call(builder, *end);
      builder.state_->also_after_.clear();
      if (at.stand_ins[node.id].empty())
        throw Error({.doing = "edit plan",
                     .object = source.name,
                     .detail = fmt::format("the function that replaces node '{}' added no node", node.name),
                     .advice = "add one to the builder that it is given, or remove the node"});
    }
    for (const EditStep* edit : edits)
      if (edit->kind == EditKind::after) call(builder, *edit);
  }
}

// In their order, so that a plan without edits is made again as it was.
void PlanReplay::declare_buffers(GraphBuilder& builder, const Plan& source) {
  const uint64_t first_condition = conditions_address(source.name), loops = loops_address(source.name);
  const bool has_conditions = std::any_of(source.conditions.begin(), source.conditions.end(),
                                          [&](const ConditionInfo& c) { return sets_or_obeys(source, c.address); });
  for (const Buffer& buffer : source.buffers) {
    const uint64_t address = buffer.range.address;
    if (lost_.contains(address)) continue;
    const bool is_own = address >= first_condition && address <= loops;
    if (address >= kConditionBase && !is_own && builder.state_->known_buffer(address, buffer.range.bytes) == nullptr)
      continue;
    if (address == loops && !has_conditions) continue;
    if (address >= first_condition && address < loops && !sets_or_obeys(source, address)) continue;
    const auto allocates = [&](const PlanNode& node) {
      return node.kind == NodeKind::allocate && node.allocated == address;
    };
    const size_t before = builder.state_->plan_.buffers.size();
    if (is_allocated(address) && std::any_of(source.nodes.begin(), source.nodes.end(), allocates))
      builder.state_->declare_unallocated(buffer);
    else
      builder.declare(buffer.range, {buffer.live_in, buffer.live_out, buffer.peer});
    if (builder.state_->plan_.buffers.size() > before) builder.state_->plan_.buffers.back().serial = buffer.serial;
  }
}

void PlanReplay::add_conditions(GraphBuilder& builder, const Plan& source) const {
  for (const ConditionInfo& condition : source.conditions) {
    if (!sets_or_obeys(source, condition.address)) continue;
    builder.state_->plan_.conditions.push_back(condition);
    builder.state_->obeyed_by_.push_back(GraphBuilder::State::kNone);
  }
}

NodeId PlanReplay::add_kept(Progress& at, const PlanNode& node, const std::vector<NodeId>& after) {
  refuse_lost_memory(at.source, node);
  GraphBuilder& builder = at.builder;
  const uint32_t layer_chars = std::exchange(builder.state_->layer_chars_, node.layer_chars);
  NodeId added;
  if (node.kind == NodeKind::conditional)
    added = add_conditional_again(builder, node);
  else if (node.kind == NodeKind::child && is_edited(*node.bodies[0]))
    added = add_child_again(builder, node, after);
  else
    added = builder.state_->add_again(at.source, node, {.after = after});
  if (node.kind == NodeKind::child && !is_edited(*node.bodies[0])) keep_handles(*node.bodies[0]);
  builder.state_->layer_chars_ = layer_chars;
  return added;
}

NodeId PlanReplay::add_conditional_again(GraphBuilder& builder, const PlanNode& node) {
  std::vector<GraphBuilder::Body> bodies;
  for (const auto& body : node.bodies) bodies.push_back([this, body](GraphBuilder& inner) { add_all(inner, *body); });
  return builder.state_->add_conditional(node.name, node.conditional, {node.condition}, bodies, {});
}

NodeId PlanReplay::add_child_again(GraphBuilder& builder, const PlanNode& node, const std::vector<NodeId>& after) {
  const Plan& source = *node.bodies[0];
  GraphBuilder inner(*source.device, source.name, source.facts);
  add_all(inner, source);
  return builder.child(node.name, std::move(inner).finish(policy_),
                       node.patchable_inside ? ChildOwnership::moved : ChildOwnership::cloned, {.after = after});
}

// The ids of the nodes that its function adds.
std::vector<uint32_t> PlanReplay::call(GraphBuilder& builder, const EditStep& edit) {
  const size_t before = builder.state_->plan_.nodes.size();
  edit.nodes(builder);
  std::vector<uint32_t> ids;
  for (size_t id = before; id < builder.state_->plan_.nodes.size(); ++id) {
    ids.push_back(static_cast<uint32_t>(id));
    added_[&edit].push_back(builder.state_->plan_.nodes[id].name);
  }
  return ids;
}

void PlanReplay::refuse_lost_memory(const Plan& plan, const PlanNode& node) const {
  for (const Use& use : node.uses)
    if (const NamedRange& range = plan.buffers[use.buffer].range; lost_.contains(range.address))
      throw Error(
          {.doing = "edit plan",
           .object = plan.name,
           .detail = fmt::format("node '{}' uses '{}', whose allocation the edit takes away", node.name, range.name),
           .advice = "remove or replace the node, too"});
}

// Whether an edit names a node of the plan, or of one inside it.
bool PlanReplay::is_edited(const Plan& plan) const {
  if (std::any_of(edits_.begin(), edits_.end(), [&](const EditStep& edit) { return edit.plan == &plan; })) return true;
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& node) {
    return std::any_of(node.bodies.begin(), node.bodies.end(), [&](const auto& body) { return is_edited(*body); });
  });
}

// The edit that takes the node away or puts others in its place; null when it stays.
const EditStep* PlanReplay::end_of(const Plan& plan, uint32_t node) const {
  const auto found = at_.find({&plan, node});
  if (found == at_.end()) return nullptr;
  const auto end =
      std::find_if(found->second.begin(), found->second.end(), [](const EditStep* e) { return ends_node(*e); });
  return end == found->second.end() ? nullptr : *end;
}

// Whether a node that stays, in the plan or inside it, has to do with the condition.
bool PlanReplay::sets_or_obeys(const Plan& plan, uint64_t condition) const {
  if (std::none_of(edits_.begin(), edits_.end(), ends_node)) return true;
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& node) {
    if (end_of(plan, node.id) != nullptr) return false;
    if (node.kind == NodeKind::conditional) {
      const auto inside = [&](const auto& body) { return sets_or_obeys(*body, condition); };
      return node.condition == condition || std::any_of(node.bodies.begin(), node.bodies.end(), inside);
    }
    return std::any_of(node.uses.begin(), node.uses.end(),
                       [&](const Use& use) { return plan.buffers[use.buffer].range.address == condition; });
  });
}

// The handles of a plan that stays as it is name its nodes.
void PlanReplay::keep_handles(const Plan& plan) {
  PlanEdit::Moved& moved = moved_[plan.id];
  moved.plan = plan.id;
  moved.nodes.clear();
  for (const PlanNode& node : plan.nodes) {
    moved.nodes.push_back(node.id);
    for (const auto& body : node.bodies) keep_handles(*body);
  }
}

}  // namespace nodewright
