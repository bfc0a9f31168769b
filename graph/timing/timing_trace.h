// Measured node times as a timeline for Perfetto (ui.perfetto.dev) and chrome://tracing.
#pragma once

#include <span>
#include <string>

#include "graph/timing/plan_timings.h"

namespace nodewright {

// One `plan` and its `timings`; both must outlive the call that takes it.
struct TimedPlan {
  const Plan* plan = nullptr;
  const PlanTimings* timings = nullptr;
};

// JSON in the Trace Event Format (object form, complete events, microseconds): a process for each plan, and in it
// tracks named "layers" and "nodes". A slice is a node from its first block's start to its last block's end; nodes that
// overlap stand on further tracks ("nodes 2", ...), and so do layers. Arguments of a slice: kernel, bytes, GB/s, share
// of the measured peak, time_us (what it adds to the step), overlap_us, bracketed. Throws Error as check_timings does.
std::string to_trace(std::span<const TimedPlan> plans);

}  // namespace nodewright
