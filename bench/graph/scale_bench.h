// What building, checking, dumping, comparing and instantiating a plan costs as it grows, beside the driver's own
// calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "bench/graph/scaled_plan.h"

namespace nodewright {

// Seconds of this process's processor time, but wall time where it says so.
struct ScaleLine {
  ScaledShape shape = ScaledShape::chain;
  size_t nodes = 0;  // those of bodies included
  size_t edges = 0;
  double add = 0, finish = 0;           // finish: edges are derived and checked
  double text = 0, json = 0, diff = 0;  // to_text, to_json; diff_plans with a plan that differs in one node
  uint64_t heap_bytes = 0;              // that the finished plan holds, argument bytes and names included
  std::optional<double> instantiate;    // wall: ExplicitGraph, as built and instantiated by the driver
  std::optional<double> driver;  // wall: cuGraphAddNode of as many kernel nodes with as many edges, and instantiation
};

struct ScaleOptions {
  size_t most_instantiated = 20000;  // nodes; beyond, graphs are not built
  bool dumps = true;
};

// Microseconds and bytes a node, in columns.
std::string scale_heading();
std::string describe(const ScaleLine& line);

ScaleLine measure_scale(Device& device, const ScaledPlans& plans, ScaledShape shape, size_t nodes,
                        const ScaleOptions& options);

}  // namespace nodewright
