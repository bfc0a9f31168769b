#include "cli/bench/graph_targets.h"

#include <fmt/format.h>

#include <algorithm>

namespace nodewright::cli {
namespace {

constexpr int kChainNodes = 1000;
// On an H200. The driver alone takes 0.25 us to add a node, 2.6 us to launch 1000 of them, 0.47 us to run one after
// programmatic edges and 0.5 us to patch one (2026-11-20, driver 580.159.04, a chain of 1000 one-thread kernels).
constexpr double kMostAddUs = 0.8, kMostLaunchUs = 4.0, kMostNodeUs = 0.62, kMostPatchUs = 0.6;
// A kernel change sets all parameters of a node. An update competes with a second CUgraph for cuGraphExecUpdate.
constexpr double kMostKernelChangeUs = 1.0, kMostUpdateRatio = 1.2;
// Building, instantiating and uploading a graph of one of many buckets.
constexpr double kMostBucketNodeUs = 9.0, kMostBucketNodeBytes = 4096.0;

Target with_value(Target target, double value) {
  target.measured = true;
  target.value = value;
  return target;
}

}  // namespace

std::vector<Target> graph_targets(const std::vector<GraphBenchLine>& lines, const BucketsResult* buckets) {
  std::vector<Target> targets;
  if (!lines.empty())
    targets = {
        {.what = "adding a node of a chain of 1000, the builder's work included", .most = kMostAddUs, .unit = "us"},
        {.what = "steady CPU launch of that graph", .most = kMostLaunchUs, .unit = "us"},
        {.what = "GPU time of its nodes behind programmatic edges", .most = kMostNodeUs, .unit = "us"},
        {.what = "patching one argument of it", .most = kMostPatchUs, .unit = "us"},
        {.what = "adding a foreign kernel node of such a chain", .most = kMostAddUs, .unit = "us"},
        {.what = "patching one argument of that", .most = kMostPatchUs, .unit = "us"},
        {.what = "changing the kernel of a node of ours", .most = kMostKernelChangeUs, .unit = "us"},
        {.what = "updating that graph by a plan, over cuGraphAddNode and cuGraphExecUpdate",
         .most = kMostUpdateRatio,
         .unit = "times"}};
  const auto chain = std::find_if(lines.begin(), lines.end(), [](const GraphBenchLine& line) {
    return line.measured_case.shape == GraphShape::chain && line.measured_case.width == KernelWidth::tiny &&
           line.measured_case.nodes == kChainNodes;
  });
  if (chain != lines.end()) {
    targets[0] = with_value(targets[0], (*chain)[GraphFigure::build].median / kChainNodes);
    targets[1] = with_value(targets[1], (*chain)[GraphFigure::launch_explicit].median);
    targets[2] = with_value(targets[2], (*chain)[GraphFigure::gpu_explicit].median / kChainNodes);
    targets[3] = with_value(targets[3], (*chain)[GraphFigure::patch_one].median);
    targets[4] = with_value(targets[4], (*chain)[GraphFigure::foreign_build].median / kChainNodes);
    targets[5] = with_value(targets[5], (*chain)[GraphFigure::patch_foreign_one].median);
    targets[6] = with_value(targets[6], (*chain)[GraphFigure::patch_kernel].median);
    targets[7] = with_value(
        targets[7], (*chain)[GraphFigure::update_plan].median / (*chain)[GraphFigure::update_plan_driver].median);
  }
  if (buckets == nullptr) return targets;

  double worst_us = 0, worst_bytes = 0;
  bool bytes_measured = false;
  for (const BucketLine& line : buckets->lines) {
    worst_us = std::max(worst_us, line.total_us() / static_cast<double>(line.nodes));
    worst_bytes = std::max(worst_bytes, line.exec_bytes / static_cast<double>(line.nodes));
    bytes_measured |= line.exec_bytes > 0;
  }
  targets.push_back(with_value({.what = "a node of the worst bucket's graph, median: build, instantiate, upload",
                                .most = kMostBucketNodeUs,
                                .unit = "us"},
                               worst_us));
  targets.push_back(
      {.what = "a node of the worst bucket's graph: device memory", .most = kMostBucketNodeBytes, .unit = "bytes"});
  if (bytes_measured) targets.back() = with_value(targets.back(), worst_bytes);
  return targets;
}

std::string describe(const Target& target) {
  const std::string value = target.measured ? fmt::format("{:.3f}", target.value) : "not measured";
  return fmt::format("{:<70} {:>12} {:<5} at most {:<6g} {}\n", target.what, value, target.unit, target.most,
                     target.met()      ? "met"
                     : target.measured ? "MISSED"
                                       : "-");
}

nlohmann::ordered_json json_of(const Target& target) {
  return {{"what", target.what},
          {"unit", target.unit},
          {"most", target.most},
          {"value", target.measured ? nlohmann::ordered_json(target.value) : nlohmann::ordered_json(nullptr)},
          {"met", target.met()}};
}

}  // namespace nodewright::cli
