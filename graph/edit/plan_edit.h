// Edits of a finished plan: nodes inserted, replaced and removed by their names. The result is another plan, made by a
// builder from the nodes that stay and from those that are new, so its edges, its checks and its refusals are a
// builder's.
//
//   PlanEdit edit(plan);
//   edit.insert_after("l3.attend", [&](GraphBuilder& g) { g.copy("probe", to, attended, attended.bytes()); });
//   edit.remove("l3.trace");
//   const Plan edited = edit.finish();
//   ExplicitGraph exec(edited);
//   exec.patch(edit.handle(norm), &RmsNorm::scale, 2.0f);
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/node.h"

namespace nodewright {

class GraphBuilder;
struct EditStep;  // graph/edit/plan_replay.h
enum class EditKind : uint8_t;

// Edits of one plan, which it keeps as it was. Not thread-safe.
//
// A name has all its scopes, as in dumps. Nodes inside others are "until.body/step", "choose.else/l0.norm" and, in the
// child "part", "part/step". Error: a name that the plan has not (with those that end alike), and one that fits two
// nodes; names of nodes that an edit adds are not known before finish().
class PlanEdit {
 public:
  // Adds nodes to the builder that it is given, no scope open. The buffers of the plan are declared, further ones can
  // be; GraphBuilder::node finds what comes before, for `after`.
  using Nodes = std::function<void(GraphBuilder&)>;

  explicit PlanEdit(Plan plan);  // edits a copy
  ~PlanEdit();
  PlanEdit(const PlanEdit&) = delete;
  PlanEdit& operator=(const PlanEdit&) = delete;

  // Adds nodes next to `name` in the order of the plan, which is the order that edges follow from: a node that is
  // inserted before another and shares no memory with it may still run after it, unless `after` says otherwise. At one
  // place the edits' order is the nodes'.
  void insert_before(std::string_view name, Nodes nodes);
  void insert_after(std::string_view name, Nodes nodes);
  // Puts other nodes, at least one, where `name` was. Explicit orders (`after`) pass to all of them: they follow what
  // the node was to follow, and what was to follow the node follows them. Once a node.
  void replace(std::string_view name, Nodes nodes);
  // Takes the node away. What was to follow it (`after`) follows what it was to follow. Once a node.
  void remove(std::string_view name);

  // The edited plan, with edges derived anew, bodies too; children without edits stay as they are. Calls the functions
  // in the order of their places, at each call of finish. What a builder refuses is refused: a range that now nobody
  // writes before it is read, a condition that no node obeys or sets, memory that is allocated and not freed. So are a
  // replacement without nodes and a node that uses memory whose allocation was removed.
  //
  // Buffers stay declared, as they were; a condition goes with its node. Names and contents of the nodes that stay are
  // what they were. The fact "edited" of the result says what was done, in all dumps.
  Plan finish(EdgePolicy policy = EdgePolicy::programmatic);

  // The handle by which the plan of the last finish() names a node of the plan before. Error: a node that was replaced
  // or removed, or that is of neither.
  template <std::derived_from<NodeId> N>
  N handle(N node) const {
    static_cast<NodeId&>(node) = moved(node);
    return node;
  }

  // What became of the nodes of one plan.
  struct Moved {
    uint64_t plan = 0;            // Plan::id of the edited plan
    std::vector<uint32_t> nodes;  // by id before: the id there; kGone
  };
  static constexpr uint32_t kGone = UINT32_MAX;

 private:
  void add(EditKind kind, std::string_view name, Nodes nodes);
  NodeId moved(NodeId node) const;

  Plan plan_;
  std::vector<EditStep> edits_;
  std::map<uint64_t, Moved> moved_;  // by Plan::id before; of the last finish()
};

}  // namespace nodewright
