// Times every node of a plan without a profiler: launches the plan and its timed twin in turns and reads the twin's
// stamps (graph/timing/timed_twin.h).
//
//   NodeTimer timer(plan, kernels, stream);
//   const PlanTimings timings = timer.measure({.samples = 30});
//
// What a time is. A node's time is the end of its last block minus the latest end among its predecessors; of a node
// without predecessors, minus the first stamp of the launch. That is what the node adds to the step: the gap before its
// first block counts as its own, and what its blocks did while a predecessor still ran does not. So along any path from
// a node to each node's latest predecessor the times add up to the path's wall time exactly, in each launch. In a chain
// that path is the whole plan. In a plan that forks, nodes beside the path overlap it: critical_path() has the sum that
// means something. (Medians of differences add up to within their noise.)
//
// A plan inside a node has times of its own: those of the last round that ran, from its own first start on.
//
// Brackets. A bracketed node's time is the stamp after it minus the stamp before it, minus what an empty bracket takes,
// measured in the same samples (bracket_us). Each bracketed node lengthens the twin's step by up to two such brackets;
// they belong to no node's time.
#pragma once

#include <vector>

#include "graph/graph_exec.h"
#include "graph/timing/plan_timings.h"
#include "graph/timing/stamped_launches.h"
#include "graph/timing/timed_twin.h"

namespace nodewright {

// Holds a plan's graph and its twin's. Not thread-safe; blocks while it measures.
class NodeTimer {
 public:
  // Builds and uploads the plan's graph, its twin's, and an empty bracket's if there is anything to bracket. `kernels`
  // made the plan's kernels; it, the plan's buffers and `stream` must outlive the timer.
  NodeTimer(const Plan& plan, KernelCache& kernels, const Stream& stream);

  // Launches the plan, so its buffers hold what some number of launches leave. Throws Error when a node has left no
  // stamps.
  PlanTimings measure(const NodeTimerOptions& options);

  const TimedTwin& twin() const { return twin_; }      // the plan with stamps
  ExplicitGraph& twin_graph() { return twin_graph_; }  // its graph

  // One launch of the twin, waited for: its stamps, as measure() reads them.
  std::vector<BlockStamps> stamps_of_one_launch();

 private:
  Plan plan_;
  const Stream& stream_;
  TimedTwin twin_;
  ExplicitGraph graph_, twin_graph_;
  StampedLaunches launches_;
};

}  // namespace nodewright
