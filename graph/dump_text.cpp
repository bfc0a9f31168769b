// to_text: a plan for people, and for golden files.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "graph/graph_dump.h"

namespace nodewright {
namespace {

std::string_view sign(Access access) {
  switch (access) {
    case Access::frozen:
      return "=";
    case Access::in:
      return "<";
    case Access::out:
      return ">";
    case Access::inout:
      return "<>";
  }
  return "?";
}

std::string what_of(const PlanNode& node) {
  const LaunchShape& s = node.shape;
  switch (node.kind) {
    case NodeKind::kernel: {
      std::string text = fmt::format("{} <{},{},{}> <{},{},{}>", node.kernel_name(), s.grid[0], s.grid[1], s.grid[2],
                                     s.block[0], s.block[1], s.block[2]);
      if (s.shared_bytes != 0) text += fmt::format(" {} B shared", s.shared_bytes);
      return text;
    }
    case NodeKind::memcpy:
      return fmt::format("memcpy {} B {}", node.copy.bytes,
                         node.copy.from_host ? "from host" : (node.copy.to_host ? "to host" : "on device"));
    case NodeKind::memset:
      return fmt::format("memset {} x {} B to {:#x}", node.fill.count, node.fill.element_bytes, node.fill.value);
    case NodeKind::conditional:
      return fmt::format("{} of {} bodies", to_string(node.conditional), node.bodies.size());
    case NodeKind::child:
      return fmt::format("child '{}' {}", node.bodies[0]->name, node.patchable_inside ? "moved" : "cloned");
    case NodeKind::host:
    case NodeKind::empty:
    case NodeKind::event_record:
    case NodeKind::event_wait:
    case NodeKind::product:
      break;
  }
  return std::string(to_string(node.kind));
}

std::string summary(const Plan& plan) {
  size_t kernels = 0, programmatic = 0;
  Traffic traffic;
  for (const PlanNode& node : plan.nodes) {
    kernels += node.kind == NodeKind::kernel;
    traffic.bytes_read += node.traffic.bytes_read;
    traffic.bytes_written += node.traffic.bytes_written;
  }
  for (const Edge& edge : plan.edges) programmatic += edge.type == EdgeType::programmatic;
  return fmt::format(
      "plan {}{}: {} nodes ({} kernels), {} edges ({} programmatic), {} buffers, {} B read, {} B written\n", plan.name,
      plan.bucket ? fmt::format(" bucket {}", *plan.bucket) : "", plan.nodes.size(), kernels, plan.edges.size(),
      programmatic, plan.buffers.size(), traffic.bytes_read, traffic.bytes_written);
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string out = summary(plan);
  const auto write = std::back_inserter(out);
  for (const Buffer& buffer : plan.buffers)
    fmt::format_to(write, "buffer {} {} B {}{}{}\n", buffer.range.name, buffer.range.bytes, buffer.range.kind,
                   buffer.live_in ? " live-in" : "", buffer.live_out ? " live-out" : "");

  std::vector<std::string> after(plan.nodes.size());
  for (const Edge& edge : plan.edges) {
    std::string reasons;
    for (const Reason& reason : edge.reasons) reasons += (reasons.empty() ? "" : ", ") + describe(plan, reason);
    after[edge.to] += fmt::format("{}{}{} ({})", after[edge.to].empty() ? "" : "; ", plan.nodes[edge.from].name,
                                  edge.type == EdgeType::programmatic ? "~" : "", reasons);
  }
  for (const PlanNode& node : plan.nodes) {
    fmt::format_to(write, "node {} {} | {} |", node.id, node.name, what_of(node));
    for (const Use& use : node.uses)
      fmt::format_to(write, " {}{}={}", sign(use.access), use.field,
                     describe_range(plan, use.buffer, use.offset, use.bytes));
    fmt::format_to(write, " | after {}\n", after[node.id].empty() ? "nothing" : after[node.id]);
  }
  return out;
}

}  // namespace nodewright
