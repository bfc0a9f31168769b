#include "graph/edit/plan_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/edit/plan_replay.h"

namespace nodewright {
namespace {

constexpr size_t kShownNames = 5;  // of those that are near a name that is not there

[[noreturn]] void refuse_edit(const Plan& plan, std::string detail, std::string advice) {
  throw Error({.doing = "edit plan", .object = plan.name, .detail = std::move(detail), .advice = std::move(advice)});
}

// A node and the plan that it is in.
struct FoundNode {
  const Plan* plan = nullptr;
  uint32_t node = 0;
};

// The nodes of a plan, and of those inside it, that a name fits or nearly fits.
struct NameSearch {
  std::string_view name;
  std::vector<FoundNode> found = {};
  std::vector<std::string> near = {};  // names that end with it

  void look_in(const Plan& plan, const std::string& path) {
    for (const PlanNode& node : plan.nodes) {
      const std::string full = path + node.name;
      if (full == name) found.push_back({&plan, node.id});
      const bool ends_alike =
          full.size() > name.size() && full.ends_with(name) &&
          (full[full.size() - name.size() - 1] == '.' || full[full.size() - name.size() - 1] == '/');
      if (ends_alike) near.push_back(full);
      for (size_t i = 0; i < node.bodies.size(); ++i)
        look_in(*node.bodies[i], node.kind == NodeKind::child
                                     ? full + "/"
                                     : fmt::format("{}.{}/", full, body_name(node.conditional, i)));
    }
  }
};

FoundNode find_node_to_edit(const Plan& plan, std::string_view name) {
  NameSearch search{.name = name};
  search.look_in(plan, "");
  if (search.found.size() > 1)
    refuse_edit(plan, fmt::format("the name '{}' fits {} nodes", name, search.found.size()),
                "give the nodes names without '/'");
  if (search.found.size() == 1) return search.found[0];
  std::string near;
  for (size_t i = 0; i < std::min(search.near.size(), kShownNames); ++i)
    near += fmt::format("{}'{}'", near.empty() ? "" : ", ", search.near[i]);
  const size_t more = search.near.size() - std::min(search.near.size(), kShownNames);
  if (more != 0) near += fmt::format(" and {} more", more);
  refuse_edit(plan,
              fmt::format("no node is named '{}'{}", name,
                          near.empty() ? fmt::format(" among its {}", plan.nodes.size()) : "; these end so: " + near),
              "pass the whole name: scopes with dots, 'node.body/inner' inside a conditional node, 'node/inner' inside "
              "a child");
}

}  // namespace

PlanEdit::PlanEdit(Plan plan) : plan_(std::move(plan)) { check_plan(plan_); }
PlanEdit::~PlanEdit() = default;

void PlanEdit::insert_before(std::string_view name, Nodes nodes) { add(EditKind::before, name, std::move(nodes)); }
void PlanEdit::insert_after(std::string_view name, Nodes nodes) { add(EditKind::after, name, std::move(nodes)); }
void PlanEdit::replace(std::string_view name, Nodes nodes) { add(EditKind::replace, name, std::move(nodes)); }

void PlanEdit::remove(std::string_view name) { add(EditKind::remove, name, {}); }

void PlanEdit::add(EditKind kind, std::string_view name, Nodes nodes) {
  const FoundNode at = find_node_to_edit(plan_, name);
  if (kind != EditKind::remove && !nodes)
    refuse_edit(plan_, fmt::format("the edit at node '{}' has no function", name),
                "pass a function that adds the nodes to its builder");
  const auto ends = [](EditKind what) { return what == EditKind::replace || what == EditKind::remove; };
  for (const EditStep& edit : edits_)
    if (ends(kind) && ends(edit.kind) && edit.plan == at.plan && edit.node == at.node)
      refuse_edit(plan_,
                  fmt::format("node '{}' is {} already", name, edit.kind == EditKind::remove ? "removed" : "replaced"),
                  "replace or remove a node once");
  edits_.push_back({kind, at.plan, at.node, std::string(name), std::move(nodes)});
}

Plan PlanEdit::finish(EdgePolicy policy) {
  PlanReplay replay(edits_, policy);
  Plan plan = replay.outermost(plan_);
  moved_ = std::move(replay).moved();
  return plan;
}

NodeId PlanEdit::moved(NodeId node) const {
  const auto found = moved_.find(node.plan);
  if (found == moved_.end() || node.index >= found->second.nodes.size())
    refuse_edit(plan_, fmt::format("node {} is of another plan, or the edit is not finished", node.index),
                "pass a handle of the plan that was edited, after finish()");
  const uint32_t index = found->second.nodes[node.index];
  if (index == kGone)
    refuse_edit(plan_, fmt::format("node {} was removed or replaced", node.index),
                "take the handle of the new node from the function that adds it");
  return {index, found->second.plan};
}

}  // namespace nodewright
