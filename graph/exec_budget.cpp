#include "graph/exec_budget.h"

#include <fmt/format.h>

namespace nodewright {
namespace {

// One H200, driver 580.159.04, 2026-11-20, many graphs alive at once: 210 KB each for graphs of some 10 nodes, 329 KB
// for the 101 nodes of a decode plan (393 KB at most), 2 MB for 1000 nodes. More than each of these:
constexpr uint64_t kExecBytes = 224 << 10, kExecBytesOfNode = 2 << 10;
constexpr double kExecMs = 0.1, kExecMsOfNode = 0.01;

size_t nodes_of(const Plan& plan) {
  size_t count = plan.nodes.size();
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies) count += nodes_of(*body);
  return count;
}

}  // namespace

ExecCost estimate_exec(const Plan& plan) {
  const auto nodes = static_cast<double>(nodes_of(plan));
  return {kExecBytes + static_cast<uint64_t>(nodes) * kExecBytesOfNode, kExecMs + nodes * kExecMsOfNode};
}

GraphBudget::Share GraphBudget::take(const Plan& plan) {
  const uint64_t bytes = estimate_exec(plan).bytes;
  if (bytes > limit_bytes_ - used_bytes_)
    throw Error({.doing = "build graph",
                 .object = plan.name,
                 .detail = fmt::format("{} nodes need about {} KiB of device memory, and graphs hold {} of the {} KiB "
                                       "they may have",
                                       nodes_of(plan), bytes >> 10, used_bytes_ >> 10, limit_bytes_ >> 10),
                 .advice = "raise the limit, build fewer buckets, or destroy a graph first"});
  used_bytes_ += bytes;
  return Share(*this, bytes);
}

}  // namespace nodewright
