#include "graph/change/update_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace nodewright {
namespace {

[[noreturn]] void refuse_update(const Plan& before, std::string detail, std::string advice) {
  throw Error(
      {.doing = "update graph",
       .object = before.name,
       .detail = std::move(detail),
       .advice = advice.empty() ? "build a graph of the plan, or replace() this one by it" : std::move(advice)});
}

// Nodes are paired one by one: the first that has no partner.
void check_names(const Plan& before, const Plan& after) {
  const size_t both = std::min(before.nodes.size(), after.nodes.size());
  for (size_t i = 0; i < both; ++i)
    if (before.nodes[i].name != after.nodes[i].name)
      refuse_update(before,
                    fmt::format("node {} is '{}' in the graph and '{}' in the plan: nodes are paired by their order", i,
                                before.nodes[i].name, after.nodes[i].name),
                    "add the nodes in the same order under the same names");
  if (before.nodes.size() == after.nodes.size()) return;
  const Plan& longer = before.nodes.size() > both ? before : after;
  refuse_update(before,
                fmt::format("the graph has {} nodes and the plan {}: node '{}' is {}", before.nodes.size(),
                            after.nodes.size(), longer.nodes[both].name, &longer == &before ? "gone" : "new"),
                "");
}

void check_update_edges(const Plan& before, const Plan& after) {
  const auto names = [](const Plan& plan, const Edge& edge) {
    return fmt::format("edge '{}' -> '{}'", plan.nodes[edge.from].name, plan.nodes[edge.to].name);
  };
  const auto same_ends = [](const Edge& a, const Edge& b) { return a.from == b.from && a.to == b.to; };
  for (size_t i = 0; i < std::max(before.edges.size(), after.edges.size()); ++i) {
    const Edge* a = i < before.edges.size() ? &before.edges[i] : nullptr;
    const Edge* b = i < after.edges.size() ? &after.edges[i] : nullptr;
    if (a != nullptr && b != nullptr && same_ends(*a, *b)) {
      if (a->type == b->type) continue;
      refuse_update(before,
                    fmt::format("{} is {} in the graph and {} in the plan", names(before, *a), to_string(a->type),
                                to_string(b->type)),
                    "");
    }
    const bool is_gone = b == nullptr || (a != nullptr && std::pair(a->to, a->from) < std::pair(b->to, b->from));
    refuse_update(before,
                  fmt::format("{} is {}: an update keeps all edges", is_gone ? names(before, *a) : names(after, *b),
                              is_gone ? "not in the plan" : "not in the graph"),
                  "");
  }
}

// Why the driver would not let `was` become `is`, or would do so without a word and wrongly; empty when nothing is
// known.
std::string rule_against(const Plan& before, const PlanNode& was, const Plan& after, const PlanNode& is) {
  if (was.kind != is.kind)
    return fmt::format("it is of kind {} in the graph and of kind {} in the plan", to_string(was.kind),
                       to_string(is.kind));
  if (is.kind == NodeKind::allocate || is.kind == NodeKind::free)
    return "it allocates or frees memory, whose address the graph keeps";
  if (is.kind == NodeKind::conditional)
    return "it is conditional: its condition belongs to the graph, and an update changes no parameter of such a node";
  if (was.attributes.device_updatable || is.attributes.device_updatable)
    return "the device may update it, and a graph with such a kernel has no update";
  if (was.attributes != is.attributes)
    return "its attributes differ (cluster, cooperative, priority, carve-out, green context), which an update does not "
           "change";
  if (was.exchange != is.exchange || (was.exchange && was.kernel != is.kernel))
    return "it takes part in an exchange, and its number or kernel differs";
  if (was.copy.to_host != is.copy.to_host || was.copy.from_host != is.copy.from_host)
    return "an end of the copy is device memory in one plan and host memory in the other";
  const bool is_flat = std::max({was.copy.rows, was.copy.slices, is.copy.rows, is.copy.slices}) <= 1;
  if (std::string arrays = array_change(before, was, after, is);
      !arrays.empty() && (!is_flat || (was.copy.to_array == nullptr) != (is.copy.to_array == nullptr) ||
                          (was.copy.from_array == nullptr) != (is.copy.from_array == nullptr)))
    return arrays;
  if (!is_flat && was.copy != is.copy) return "it copies rows or a box, and no parameter of such a copy may change";
  if (was.fill.rows != is.fill.rows) return "the number of the fill's rows differs";
  if (was.fill.rows > 1 && (was.fill.count != is.fill.count || was.fill.pitch != is.fill.pitch ||
                            was.fill.element_bytes != is.fill.element_bytes))
    return "it fills rows, of which address and value alone may change";
  const auto same_operation = [](const ValueOperation& a, const ValueOperation& b) {
    return a.waits == b.waits && a.bytes == b.bytes;
  };
  if (!std::equal(was.values.begin(), was.values.end(), is.values.begin(), is.values.end(), same_operation))
    return "its list of value operations differs in more than addresses and values";
  if (was.patchable_inside != is.patchable_inside) return "its child is moved in one plan and cloned in the other";
  return "";
}

// The same fields, perhaps with other values.
bool same_fields(const PlanNode& a, const PlanNode& b) {
  return a.arguments.size() == b.arguments.size() &&
         std::equal(a.fields.begin(), a.fields.end(), b.fields.begin(), b.fields.end(),
                    [](const FieldInfo& x, const FieldInfo& y) {
                      return x.name == y.name && x.offset == y.offset && x.bytes == y.bytes && x.role == y.role;
                    });
}

bool same_ranges(const Plan& before, const PlanNode& was, const Plan& after, const PlanNode& is) {
  return std::equal(was.uses.begin(), was.uses.end(), is.uses.begin(), is.uses.end(), [&](const Use& a, const Use& b) {
    return before.buffers[a.buffer].range.address + a.offset == after.buffers[b.buffer].range.address + b.offset &&
           a.bytes == b.bytes;
  });
}

bool same_shape(const LaunchShape& a, const LaunchShape& b) {
  return std::equal(a.grid, a.grid + 3, b.grid) && std::equal(a.block, a.block + 3, b.block) &&
         a.shared_bytes == b.shared_bytes;
}

uint32_t changed_of(const Plan& before, const PlanNode& was, const Plan& after, const PlanNode& is) {
  uint32_t changed = 0;
  const auto note = [&](bool differs, Changed what) { changed |= differs ? static_cast<uint32_t>(what) : 0; };
  if (is.kind == NodeKind::kernel) {
    note(was.kernel != is.kernel, Changed::kernel);
    note(!same_shape(was.shape, is.shape), Changed::shape);
    if (!same_fields(was, is)) {
      note(true, Changed::scalars);
      note(true, Changed::memory);
    } else {
      for (const FieldInfo& field : is.fields)
        note(std::memcmp(was.arguments.data() + field.offset, is.arguments.data() + field.offset, field.bytes) != 0,
             is_memory(field.role) ? Changed::memory : Changed::scalars);
    }
  }
  note(was.copy != is.copy || !same_ranges(before, was, after, is), Changed::memory);
  note(was.fill.value != is.fill.value || was.fill.element_bytes != is.fill.element_bytes, Changed::fill_value);
  note(was.host != is.host && is.kind == NodeKind::host, Changed::function);
  note(was.event != is.event, Changed::event);
  note(was.values != is.values, Changed::values);
  note(was.semaphore != is.semaphore, Changed::semaphore);
  note(was.library != is.library, Changed::library);
  return changed;
}

// "array 'cube'", "memory".
std::string end_words(const Plan& plan, CUarray array, uint64_t address) {
  if (array == nullptr) return "memory";
  for (const Buffer& buffer : plan.buffers)
    if (address - buffer.range.address < buffer.range.bytes) return fmt::format("array '{}'", buffer.range.name);
  return "another array";
}

}  // namespace

std::string array_change(const Plan& before, const PlanNode& was, const Plan& after, const PlanNode& is) {
  const auto end = [&](const char* which, CUarray a, uint64_t at, CUarray b, uint64_t later_at) {
    if (a == b) return std::string();
    return fmt::format("'{}' is {} in the graph and {} in the plan", which, end_words(before, a, at),
                       end_words(after, b, later_at));
  };
  std::string ends = end("to", was.copy.to_array, was.copy.to, is.copy.to_array, is.copy.to);
  const std::string from = end("from", was.copy.from_array, was.copy.from, is.copy.from_array, is.copy.from);
  return ends + (ends.empty() || from.empty() ? "" : ", ") + from;
}

std::string describe(const NodeChange& change, const Plan& outermost) {
  static constexpr std::pair<Changed, std::string_view> kWords[] = {
      {Changed::kernel, "kernel"},        {Changed::shape, "shape"},           {Changed::scalars, "scalars"},
      {Changed::memory, "memory"},        {Changed::fill_value, "fill value"}, {Changed::function, "function"},
      {Changed::event, "event"},          {Changed::values, "values"},         {Changed::semaphore, "semaphore"},
      {Changed::library, "library call"}, {Changed::patches, "patches"}};
  std::string text;
  for (const auto& [what, word] : kWords)
    if (change.has(what)) text.append(text.empty() ? "" : ", ").append(word);
  return (change.plan == outermost.name ? "" : change.plan + ": ") + change.node + ": " + text;
}

void find_changes(const Plan& before, const Plan& after, const std::vector<bool>& patched,
                  std::vector<NodeChange>& changes) {
  if (before.device != after.device)
    refuse_update(before, fmt::format("plan '{}' was made for another device", after.name),
                  "build both for one device");
  check_names(before, after);
  for (size_t i = 0; i < after.nodes.size(); ++i) {
    const PlanNode &was = before.nodes[i], &is = after.nodes[i];
    if (std::string rule = rule_against(before, was, after, is); !rule.empty())
      refuse_update(before, fmt::format("node '{}': {}", is.name, rule), "");
    uint32_t changed = changed_of(before, was, after, is);
    if (patched[i]) changed |= static_cast<uint32_t>(Changed::patches);
    if (changed != 0) changes.push_back({after.name, is.name, is.id, changed});
  }
  check_update_edges(before, after);
}

}  // namespace nodewright
