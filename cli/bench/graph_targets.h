// What the graph library's costs may be, and whether a measurement keeps to it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/graph/graph_bench.h"
#include "bench/graph/model_graph_bench.h"

namespace nodewright::cli {

struct Target {
  std::string what;  // "adding a node"
  double most = 0;   // in `unit`
  std::string unit;
  bool measured = false;
  double value = 0;
  bool met() const { return measured && value <= most; }
};

// From the line of 1000 tiny kernels in a chain, when there are lines; and from the bucket whose graph is the worst,
// when `buckets` is not null.
std::vector<Target> graph_targets(const std::vector<GraphBenchLine>& lines, const BucketsResult* buckets);

std::string describe(const Target& target);  // a line
nlohmann::ordered_json json_of(const Target& target);

}  // namespace nodewright::cli
