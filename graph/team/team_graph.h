// An explicit graph a rank, launched as one.
#pragma once

#include <memory>
#include <vector>

#include "graph/graph_exec.h"
#include "graph/team/team_plan.h"

namespace nodewright {

// Instantiated graphs of a team's plans. One thread at a time builds, patches, launches and destroys it; graphs of one
// team may be launched by several threads.
class TeamGraph {
 public:
  // Instantiates and uploads on all ranks, so that a launch makes no driver call that may wait for a device. `memory`:
  // that of the plan, which must outlive the graph, as all that its plans name. Throws Error as ExplicitGraph does.
  TeamGraph(ExchangeMemory& memory, TeamPlan plan);

  // Launches all ranks, in their order, under the team's lock: nothing else of the team is launched in between. Throws
  // Error when the memory is given up, or when the launch of a rank fails: then the exchange is given up, those ranks
  // that were launched have ended, with results that mean nothing, and the next launch needs ExchangeMemory::recover().
  void launch(const TeamStream& streams);

  const TeamPlan& plan() const { return plan_; }                              // as built, without the ranks' plans
  ExplicitGraph& rank(size_t rank) { return *graphs_.at(rank); }              // for patches; launch() launches it
  const ExplicitGraph& rank(size_t rank) const { return *graphs_.at(rank); }  // for dumps and statistics

 private:
  void launch_ranks(const TeamStream& streams, uint32_t number);

  ExchangeMemory* memory_;
  TeamPlan plan_;
  std::vector<std::unique_ptr<ExplicitGraph>> graphs_;
};

}  // namespace nodewright
