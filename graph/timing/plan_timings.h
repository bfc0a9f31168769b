// What the nodes of a plan took on a device: plain data, with its JSON form and its timeline. Measuring is done
// elsewhere; the dumps read it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/node.h"

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

// One node in one launch of the plan; medians over the samples. All times in microseconds.
struct NodeTiming {
  uint32_t node = 0;      // its id
  double time_us = 0;     // the last block's end minus the latest predecessor's end: what the node adds to the step
  double span_us = 0;     // the first block's start to the last block's end
  double overlap_us = 0;  // how long before its latest predecessor's end its first block began; never negative
  double start_us = 0, end_us = 0;  // first block's start and last block's end, from the first stamp of the launch
  double waited_us = 0;             // when its last block's wait returned, likewise; 0: it does not wait
  bool bracketed = false;           // timed from outside, by the stamps of a kernel before it and one after it
  // Timings of the plans inside it, in one round, counted from its first stamp, without nodes that did not run. Empty
  // where they were not timed.
  std::vector<std::vector<NodeTiming>> bodies;
};

// Timings of a plan's nodes and of its whole launch.
struct PlanTimings {
  std::string plan;               // its name
  std::vector<NodeTiming> nodes;  // by id, each at most once; nodes that were not timed are left out
  double step_us = 0;             // one launch of the plan while it was stamped
  double plain_step_us = 0;       // one launch of the plan as it is
  double peak_bytes_per_s = 0;    // read bandwidth measured on the same device; 0: not measured
  double bracket_us = 0;          // what an empty bracket takes, already taken off the bracketed nodes' times
  double clock_step_us = 0;       // the finest difference that the stamps' clock has shown
  int samples = 0;                // launches that the medians are of
};

// Bytes over time: those the node really moves (PlanNode::traffic). 0 where the time is 0.
double bytes_per_s(const PlanNode& node, const NodeTiming& timing);

// The timed nodes of one layer, those without a layer under "".
struct LayerTiming {
  std::string layer;
  uint32_t nodes = 0;
  uint64_t bytes = 0;  // read and written
  double time_us = 0;  // the sum of its nodes' times
  // Over all of its nodes; 0 where they take no time.
  double bytes_per_s() const { return time_us > 0 ? static_cast<double>(bytes) / time_us * 1e6 : 0; }
};
// In order of each layer's first timed node.
std::vector<LayerTiming> layer_timings(const Plan& plan, const PlanTimings& timings);

// From the node that ends last, back over each node's latest predecessor, in the order of running; and the sum of
// their times.
struct CriticalPath {
  std::vector<uint32_t> nodes;  // ids
  double time_us = 0;           // of them together
};
CriticalPath critical_path(const Plan& plan, const PlanTimings& timings);

// {"plan", "plan_hash" (graph/edges/plan_hash.h), "samples", "step_us", "plain_step_us", "peak_bytes_per_s",
// "bracket_us", "clock_step_us", "critical_path_us", "critical_path": [node],
//  "nodes": [{"node", "name", "layer", "kernel", "time_us", "span_us", "overlap_us", "start_us", "end_us",
//             "waited_us", "bracketed", "bytes", "bytes_per_s", "share_of_peak", "bodies": [{"nodes": the same}]}],
//  "layers": [{"layer", "nodes", "time_us", "bytes", "bytes_per_s", "share_of_peak"}]}
// bytes are read and written together; bytes_per_s and share_of_peak, and all of "layers", follow from the rest and are
// not read back; nor is kernel. share_of_peak is null where the peak was not measured. Throws Error as check_timings
// does.
std::string to_json(const PlanTimings& timings, const Plan& plan);

// Reads what to_json wrote. `source` (a path) is what errors call it. Throws Error naming `source` and the entry that
// is missing or no number, or that shows that these are another plan's timings.
PlanTimings parse_timings(std::string_view json, const std::string& source, const Plan& plan);

// Throws Error unless `timings` are of `plan`: its name, ids within range and ascending, times finite and not negative
// (a start may be).
void check_timings(const PlanTimings& timings, const Plan& plan);

// One `plan` and its `timings`; both must outlive the call that takes it.
struct TimedPlan {
  const Plan* plan = nullptr;
  const PlanTimings* timings = nullptr;
};

// A timeline for Perfetto (ui.perfetto.dev) and chrome://tracing: JSON in the Trace Event Format (object form, complete
// events, microseconds), a process for each plan, and in it tracks named "layers" and "nodes". A slice is a node from
// its first block's start to its last block's end; nodes that overlap stand on further tracks ("nodes 2", ...), and so
// do layers. Arguments of a slice: kernel, bytes, GB/s, share of the measured peak, time_us (what it adds to the step),
// overlap_us, bracketed. Throws Error as check_timings does.
std::string to_trace(std::span<const TimedPlan> plans);

}  // namespace nodewright
