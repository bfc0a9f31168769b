// A plan's fourth run: explicit graphs of what lies between certain nodes, which are launched by themselves. What an
// engine does whose attention cannot be in a graph; here for comparison with the plan as one graph.
#pragma once

#include <functional>
#include <variant>
#include <vector>

#include "graph/graph_exec.h"

namespace nodewright {

// The plan's nodes in order, cut before and after each stretch of nodes that are `apart`; orders across a cut are the
// stream's. Each part is named "<plan>.<number>". Throws Error where the plan has conditional nodes or
// allocations: conditions and memory belong to one graph.
struct PlanPart {
  Plan plan;
  bool apart = false;
};
std::vector<PlanPart> parts_of(const Plan& plan, const std::function<bool(const PlanNode&)>& apart);

class PiecewiseRun {
 public:
  // Builds and uploads a graph for each part that is not apart. `stream` must outlive the run; launches go there.
  PiecewiseRun(const Plan& plan, const std::function<bool(const PlanNode&)>& apart, const Stream& stream);

  void launch();
  size_t graphs() const;

 private:
  const Stream& stream_;
  std::vector<std::variant<Plan, ExplicitGraph>> parts_;
};

}  // namespace nodewright
