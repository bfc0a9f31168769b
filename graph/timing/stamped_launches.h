// Times of the nodes of a plan by the stamps that launches of its timed twin leave, whichever way the two graphs were
// built.
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

// Not thread-safe; blocks while it measures.
class StampedLaunches {
 public:
  using Launch = std::function<void(const Stream&)>;

  // Builds and uploads an empty bracket's graph if the twin has anything bracketed. `stream` must outlive it.
  StampedLaunches(const Plan& plan, const TimedTwin& twin, KernelCache& kernels, const Stream& stream);

  // Launches the plan and its twin in turns. Throws Error when a node has left no stamps.
  PlanTimings measure(const Plan& plan, const TimedTwin& twin, const Launch& launch_plan, const Launch& launch_twin,
                      const NodeTimerOptions& options);

  // A slot that stays zero tells of a block that has not run.
  void clear(const DeviceBuffer& stamps) const;
  std::vector<BlockStamps> read(const DeviceBuffer& stamps) const;

 private:
  double step_us(const Launch& launch, const NodeTimerOptions& options) const;
  double sample_bracket_us();

  const Stream& stream_;
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
