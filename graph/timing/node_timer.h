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

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "graph/graph_exec.h"
#include "graph/timing/plan_timings.h"
#include "graph/timing/timed_twin.h"
#include "runtime/event.h"

namespace nodewright {

// How to measure.
struct NodeTimerOptions {
  int samples = 30;              // of every figure; medians are reported
  int launches_per_sample = 10;  // back to back between two events; the last one's stamps are read
  // Called before every launch, with the stream idle, when launches use up what the host prepares. Launches are not
  // back to back then.
  std::function<void()> before_launch;
  // The device's read bandwidth in bytes per second, asked for once a sample: bench/steps/read_bandwidth.h.
  std::function<double()> read_peak;
};

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
  double step_us(ExplicitGraph& graph, const NodeTimerOptions& options) const;
  void clear(const DeviceBuffer& stamps) const;
  std::vector<BlockStamps> read(const DeviceBuffer& stamps) const;
  double sample_bracket_us();

  Plan plan_;
  const Stream& stream_;
  TimedTwin twin_;
  ExplicitGraph graph_, twin_graph_;
  DeviceBuffer bracket_stamps_;
  std::optional<ExplicitGraph> bracket_graph_;  // stamp kernels in a row; nothing when nothing is bracketed
  Event start_, end_;
};

// One launch's times of every node, by id. `bracket_us`: of an empty bracket in the same launch or near it.
std::vector<NodeTiming> node_timings(const Plan& plan, const TimedTwin& twin, std::span<const NodeSpan> spans,
                                     double bracket_us);

// The smallest difference between two stamps that differ, ns; 0 when all are equal. What a time can be trusted to.
uint64_t clock_step_ns(std::span<const BlockStamps> stamps);

}  // namespace nodewright
