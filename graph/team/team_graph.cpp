#include "graph/team/team_graph.h"

#include <fmt/format.h>

#include "runtime/context_guard.h"

namespace nodewright {

TeamGraph::TeamGraph(ExchangeMemory& memory, TeamPlan plan) : memory_(&memory), plan_(std::move(plan)) {
  if (plan_.ranks.size() != memory.team().size())
    throw Error({.doing = "build team graph",
                 .object = plan_.name,
                 .detail = fmt::format("{} plans for {} ranks", plan_.ranks.size(), memory.team().size()),
                 .advice = "make the plans with plan_team and the same memory"});
  const TeamStream streams(memory.team(), plan_.name + ".upload");
  for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
    graphs_.push_back(std::make_unique<ExplicitGraph>(plan_.ranks[rank]));
    graphs_.back()->upload(streams.rank(rank));
  }
  streams.synchronize();
}

void TeamGraph::launch(const TeamStream& streams) {
  const std::lock_guard lock(memory_->team().launching());
  if (streams.size() != graphs_.size() || memory_->given_up())
    throw Error({.doing = "launch team",
                 .object = plan_.name,
                 .detail = memory_->given_up() ? fmt::format("its exchange memory '{}' is given up", memory_->name())
                                               : fmt::format("{} streams for {} ranks", streams.size(), graphs_.size()),
                 .advice = "wait for all ranks and call ExchangeMemory::recover, or pass the team's streams"});
  const uint32_t number = memory_->next_launch(streams);
  try {
    launch_ranks(streams, number);
  } catch (...) {
    memory_->give_up();
    try {
      streams.synchronize();
    } catch (const Error&) {  // the first failure is reported
    }
    throw;
  }
}

// The numbers first: between two launches nothing is called that could wait.
void TeamGraph::launch_ranks(const TeamStream& streams, uint32_t number) {
  for (size_t rank = 0; rank < graphs_.size(); ++rank) {
    const Device& device = memory_->team().device(rank);
    const ContextGuard current(device);
    device.driver().check(
        device.driver().cuMemsetD32Async(memory_->launch_number(rank).address(), number, 1, streams.rank(rank).get()),
        "cuMemsetD32Async", "set the number of a launch of", graphs_[rank]->plan().name);
  }
  for (size_t rank = 0; rank < graphs_.size(); ++rank) graphs_[rank]->launch(streams.rank(rank));
}

}  // namespace nodewright
