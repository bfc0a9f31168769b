// to_text: a plan for people, and for golden files.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

#include "graph/dump/graph_dump.h"
#include "graph/edges/plan_fold.h"

namespace nodewright {
namespace {

std::string_view sign(const Use& use) {
  if (use.peer != PeerUse::none) return use.peer == PeerUse::out ? ">>" : "<<";
  switch (use.access) {
    case Access::frozen:
      return "=";
    case Access::in:
      return use.settled ? "<~" : "<";
    case Access::out:
      return ">";
    case Access::inout:
      return use.settled ? "<~>" : "<>";
  }
  return "?";
}

// Those that are not the default, each after a space.
std::string words_of(const KernelAttributes& attributes) {
  const KernelAttributes none;
  std::string text;
  if (attributes.cluster != none.cluster)
    text += fmt::format(" cluster {},{},{}", attributes.cluster[0], attributes.cluster[1], attributes.cluster[2]);
  if (attributes.cooperative) text += " cooperative";
  if (attributes.device_updatable) text += " device-updatable";
  if (attributes.green.multiprocessors != 0)
    text += fmt::format(" green {} multiprocessors", attributes.green.multiprocessors);
  if (attributes.priority != none.priority) text += fmt::format(" priority {}", attributes.priority);
  if (attributes.shared_carveout_percent != none.shared_carveout_percent)
    text += fmt::format(" carveout {} %", attributes.shared_carveout_percent);
  return text;
}

// What a node of a graph that was built elsewhere has besides, after a colon.
std::string words_of(const std::shared_ptr<const ReadNode>& read) {
  return read == nullptr || read->what.empty() ? "" : ": " + read->what;
}

std::string rows_of(uint64_t rows) { return rows == 1 ? "" : fmt::format("{} rows of ", rows); }

std::string ends_of(const CopyParameters& copy) {
  if (copy.from_array == nullptr && copy.to_array == nullptr)
    return copy.from_host ? "from host" : copy.to_host ? "to host" : "on device";
  const auto end = [](CUarray array, bool host, uint64_t address, uint64_t pitch, uint64_t height) {
    if (array == nullptr) return std::string(host ? "host" : "device");
    const ArrayOrigin at = origin_of(address, pitch, height);
    return fmt::format("array ({},{},{})", at.x_bytes, at.y, at.z);
  };
  return fmt::format("from {} to {}",
                     end(copy.from_array, copy.from_host, copy.from, copy.from_pitch, copy.from_height),
                     end(copy.to_array, copy.to_host, copy.to, copy.to_pitch, copy.to_height));
}

std::string what_of(const PlanNode& node) {
  const LaunchShape& s = node.shape;
  switch (node.kind) {
    case NodeKind::kernel: {
      std::string text = fmt::format("{} <{},{},{}> <{},{},{}>", node.kernel_name(), s.grid[0], s.grid[1], s.grid[2],
                                     s.block[0], s.block[1], s.block[2]);
      if (s.shared_bytes != 0) text += fmt::format(" {} B shared", s.shared_bytes);
      return text + words_of(node.attributes);
    }
    case NodeKind::memcpy:
      return fmt::format("memcpy {}{}{} B {}",
                         node.copy.slices == 1 ? "" : fmt::format("{} slices of ", node.copy.slices),
                         rows_of(node.copy.rows), node.copy.bytes, ends_of(node.copy));
    case NodeKind::memset:
      return fmt::format("memset {}{} x {} B to {:#x}", rows_of(node.fill.rows), node.fill.count,
                         node.fill.element_bytes, node.fill.value);
    case NodeKind::conditional:
      return fmt::format("{} of {} bodies", to_string(node.conditional), node.bodies.size());
    case NodeKind::child:
      if (node.read != nullptr) return fmt::format("child '{}'", node.bodies[0]->name);
      return fmt::format("child '{}' {}", node.bodies[0]->name, node.patchable_inside ? "moved" : "cloned");
    case NodeKind::other:
    case NodeKind::host:
    case NodeKind::empty:
    case NodeKind::event_record:
    case NodeKind::event_wait:
      break;
    case NodeKind::allocate:
      return fmt::format("allocate {} B", node.uses[0].bytes);
    case NodeKind::values: {
      std::string text = "values";
      for (const ValueOperation& operation : node.values) text += (text.size() == 6 ? " " : ", ") + describe(operation);
      return text;
    }
    case NodeKind::semaphore_signal:
    case NodeKind::semaphore_wait:
      return fmt::format("{} {}", to_string(node.kind), node.semaphore.value);
    case NodeKind::free:
      break;
    case NodeKind::library:
      if (!node.library->what.empty()) return node.library->what;
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
  std::string facts;
  for (const auto& [what, is] : plan.facts) facts += fmt::format(" {} {}", what, is);
  return fmt::format(
      "plan {}{}: {} nodes ({} kernels), {} edges ({} programmatic), {} buffers, {} B read, {} B written\n", plan.name,
      facts, plan.nodes.size(), kernels, plan.edges.size(), programmatic, plan.buffers.size(), traffic.bytes_read,
      traffic.bytes_written);
}

// "l0.down~ (RAW residual[0,768))"
std::string describe(const Plan& plan, const Edge& edge) {
  std::string reasons;
  for (const Reason& reason : edge.reasons) reasons += (reasons.empty() ? "" : ", ") + describe(plan, reason);
  std::string type = edge.type == EdgeType::programmatic ? "~" : "";
  if (edge.type == EdgeType::other)
    type = fmt::format("~[type {}, port {} to {}]", edge.driver_type, edge.from_port, edge.to_port);
  return fmt::format("{}{} ({})", plan.nodes[edge.from].name, type, reasons);
}

// How a block hangs on what is before it: " | l1.qkv after l0.down~ (RAW residual[0,768))", or nothing.
std::string joints_of(const Plan& plan, const LayerBlock& block) {
  std::string joints;
  for (const Edge& edge : plan.edges)
    if (edge.from < block.first && edge.to >= block.first && edge.to < block.first + block.count)
      joints +=
          fmt::format("{} {} after {}", joints.empty() ? " |" : ";", plan.nodes[edge.to].name, describe(plan, edge));
  return joints;
}

// "l1 .. l15": the blocks after a run's first.
std::string others_of(const BlockRun& run) {
  const std::string &second = run.blocks[1].layer, &last = run.blocks.back().layer;
  return second == last ? second : second + " .. " + last;
}

// Which buffers and nodes are shown, and what is said in place of the others.
struct Shown {
  std::vector<bool> buffers, nodes;
  std::map<uint32_t, std::string> after_buffer, after_node;
};

Shown all_of(const Plan& plan) {
  return {std::vector<bool>(plan.buffers.size(), true), std::vector<bool>(plan.nodes.size(), true), {}, {}};
}

bool same_kind(const Buffer& a, const Buffer& b) {
  return a.range.bytes == b.range.bytes && a.range.kind == b.range.kind && a.live_in == b.live_in &&
         a.live_out == b.live_out;
}

// Hides the counterparts of a buffer of the run's first layer, where every layer of the run has one.
void fold_buffers(const Plan& plan, const BlockRun& run, const std::map<std::string_view, uint32_t>& buffer_named,
                  Shown& shown) {
  for (uint32_t id = 0; id < plan.buffers.size(); ++id) {
    std::vector<uint32_t> others;
    for (size_t i = 1; i < run.blocks.size(); ++i) {
      const auto other =
          buffer_named.find(replace_layer(plan.buffers[id].range.name, run.blocks[0].layer, run.blocks[i].layer));
      if (other == buffer_named.end() || other->second == id ||
          !same_kind(plan.buffers[id], plan.buffers[other->second]))
        break;
      others.push_back(other->second);
    }
    if (others.size() + 1 != run.blocks.size()) continue;
    for (const uint32_t other : others) shown.buffers[other] = false;
    shown.after_buffer[id] = fmt::format(", {} × the same: {}", others.size(), others_of(run));
  }
}

Shown folded(const Plan& plan) {
  Shown shown = all_of(plan);
  std::map<std::string_view, uint32_t> buffer_named;
  for (uint32_t id = 0; id < plan.buffers.size(); ++id) buffer_named[plan.buffers[id].range.name] = id;
  for (const BlockRun& run : fold_layers(plan)) {
    if (run.blocks.size() == 1) continue;
    const LayerBlock &first = run.blocks.front(), &last = run.blocks.back();
    const uint32_t begin = first.first + first.count, end = last.first + last.count;
    std::fill(shown.nodes.begin() + begin, shown.nodes.begin() + end, false);
    shown.after_node[begin - 1] = fmt::format("{} × same block: {} | nodes {} to {}{}\n", run.blocks.size() - 1,
                                              others_of(run), begin, end - 1, joints_of(plan, run.blocks[1]));
    fold_buffers(plan, run, buffer_named, shown);
  }
  return shown;
}

// Buffers of the plans around a body or a child, by name: they are not shown again.
using KnownBuffers = std::unordered_map<std::string_view, const NamedRange*>;

std::string text_of(const Plan& plan, Fold fold, KnownBuffers& known, const std::string& indent) {
  Shown shown = fold == Fold::layers ? folded(plan) : all_of(plan);
  std::vector<std::string_view> own;  // those that are new
  for (uint32_t id = 0; id < plan.buffers.size(); ++id) {
    const NamedRange& range = plan.buffers[id].range;
    const auto [found, is_new] = known.emplace(range.name, &range);
    if (is_new)
      own.push_back(range.name);
    else if (*found->second == range)
      shown.buffers[id] = false;
  }
  std::string out = indent + summary(plan);
  const auto write = std::back_inserter(out);
  for (const KeptObject& kept : plan.kept) fmt::format_to(write, "{}keeps {}\n", indent, kept.name);
  for (uint32_t id = 0; id < plan.buffers.size(); ++id) {
    const Buffer& buffer = plan.buffers[id];
    if (shown.buffers[id])
      fmt::format_to(write, "{}buffer {} {} B {}{}{}{}\n", indent, buffer.range.name, buffer.range.bytes,
                     buffer.range.kind, buffer.live_in ? " live-in" : "", buffer.live_out ? " live-out" : "",
                     shown.after_buffer[id]);
  }

  std::vector<std::string> after(plan.nodes.size());
  for (const Edge& edge : plan.edges) after[edge.to] += (after[edge.to].empty() ? "" : "; ") + describe(plan, edge);
  for (const PlanNode& node : plan.nodes) {
    if (!shown.nodes[node.id]) continue;
    fmt::format_to(write, "{}node {} {} | {}{} |", indent, node.id, node.name, what_of(node), words_of(node.read));
    for (const Use& use : node.uses)
      fmt::format_to(write, " {}{}={}", sign(use), use.field, describe_range(plan, use.buffer, use.offset, use.bytes));
    if (node.read != nullptr)
      for (const Use& use : node.read->possible)
        fmt::format_to(write, " ?{}={}", use.field, describe_range(plan, use.buffer, use.offset, use.bytes));
    fmt::format_to(write, " | after {}\n", after[node.id].empty() ? "nothing" : after[node.id]);
    for (const auto& body : node.bodies) out += text_of(*body, fold, known, indent + "  ");
    if (!shown.after_node[node.id].empty()) out += indent + shown.after_node[node.id];
  }
  for (const std::string_view name : own) known.erase(name);
  return out;
}

}  // namespace

std::string to_text(const Plan& plan, Fold fold) {
  KnownBuffers known;
  return text_of(plan, fold, known, "");
}

}  // namespace nodewright
