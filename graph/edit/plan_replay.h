// Makes a plan again, node by node through a builder, with edits on the way. No part of the public interface.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/edit/plan_edit.h"
#include "graph/graph_builder.h"

namespace nodewright {

enum class EditKind : uint8_t { before, after, replace, remove };

// One edit of PlanEdit.
struct EditStep {
  EditKind kind = EditKind::before;
  const Plan* plan = nullptr;  // that the node is in
  uint32_t node = 0;           // its id there
  std::string name;            // as given
  PlanEdit::Nodes nodes;       // empty for remove
};

class PlanReplay {
 public:
  PlanReplay(std::span<const EditStep> edits, EdgePolicy policy);

  // The edited plan. `source`: the plan whose nodes the edits name. Once.
  Plan outermost(const Plan& source);
  std::map<uint64_t, PlanEdit::Moved> moved() && { return std::move(moved_); }

 private:
  // One plan as it is made again.
  struct Progress {
    const Plan& source;
    GraphBuilder& builder;
    std::vector<std::vector<uint32_t>> stand_ins;  // by id in `source`: which nodes other nodes follow in its place
    size_t next_order = 0;                         // in source.after
  };

  void add_all(GraphBuilder& builder, const Plan& source);
  void declare_buffers(GraphBuilder& builder, const Plan& source);
  void add_conditions(GraphBuilder& builder, const Plan& source) const;
  NodeId add_kept(Progress& at, const PlanNode& node, const std::vector<NodeId>& after);
  NodeId add_conditional_again(GraphBuilder& builder, const PlanNode& node);
  NodeId add_child_again(GraphBuilder& builder, const PlanNode& node, const std::vector<NodeId>& after);
  std::vector<uint32_t> call(GraphBuilder& builder, const EditStep& edit);
  void refuse_lost_memory(const Plan& plan, const PlanNode& node) const;
  bool is_edited(const Plan& plan) const;
  const EditStep* end_of(const Plan& plan, uint32_t node) const;
  bool sets_or_obeys(const Plan& plan, uint64_t condition) const;
  void keep_handles(const Plan& plan);

  std::span<const EditStep> edits_;
  EdgePolicy policy_;
  std::map<std::pair<const Plan*, uint32_t>, std::vector<const EditStep*>> at_;
  std::set<uint64_t> lost_;                                    // addresses of memory whose allocation goes
  std::map<const EditStep*, std::vector<std::string>> added_;  // names of the nodes
  std::map<uint64_t, PlanEdit::Moved> moved_;
};

}  // namespace nodewright
