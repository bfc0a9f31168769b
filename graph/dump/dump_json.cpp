// to_json: a plan for programs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_json.h"
#include "graph/edges/buffer_lifetimes.h"
#include "graph/edges/plan_fold.h"
#include "graph/edges/plan_hash.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

std::string_view to_string(Role role) {
  switch (role) {
    case Role::scalar:
      return "scalar";
    case Role::frozen:
      return "frozen";
    case Role::settled:
      return "settled";
    case Role::settled_in_out:
      return "settled inout";
    case Role::in:
      return "in";
    case Role::out:
    case Role::partial_out:
      return "out";
    case Role::in_out:
      return "inout";
    case Role::condition:
      return "condition";
    case Role::peer_out:
      return "peer out";
    case Role::peer_in:
      return "peer in";
    case Role::exchange_number:
      return "exchange";
  }
  return "?";
}

std::string_view to_string(ElementType type) {
  switch (type) {
    case ElementType::other:
      return "other";
    case ElementType::boolean:
      return "bool";
    case ElementType::int8:
      return "int8";
    case ElementType::uint8:
      return "uint8";
    case ElementType::int16:
      return "int16";
    case ElementType::uint16:
      return "uint16";
    case ElementType::int32:
      return "int32";
    case ElementType::uint32:
      return "uint32";
    case ElementType::int64:
      return "int64";
    case ElementType::uint64:
      return "uint64";
    case ElementType::bfloat16:
      return "bf16";
    case ElementType::float32:
      return "float32";
    case ElementType::float64:
      return "float64";
  }
  return "?";
}

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// JSON has no infinities and no NaN; programs that read numbers as doubles hold no integer beyond 2^53.
template <class T>
Json json_number(T value) {
  if constexpr (std::is_same_v<T, float>) {
    // Through the shortest decimal of the float: 0.1, not 0.10000000149011612.
    return std::isfinite(value) ? Json(std::stod(fmt::format("{}", value))) : Json(fmt::format("{}", value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
  } else {
    constexpr int64_t kLargest = int64_t{1} << 53;
    const bool exact = std::cmp_less_equal(value, kLargest) && std::cmp_greater_equal(value, -kLargest);
    return exact ? Json(value) : Json(fmt::format("{}", value));
  }
}

Json scalar_value(ElementType type, const std::byte* bytes) {
  switch (type) {
    case ElementType::other:
      return nullptr;
    case ElementType::boolean:
      return load<uint8_t>(bytes) != 0;
    case ElementType::int8:
      return load<int8_t>(bytes);
    case ElementType::uint8:
      return load<uint8_t>(bytes);
    case ElementType::int16:
      return load<int16_t>(bytes);
    case ElementType::uint16:
      return load<uint16_t>(bytes);
    case ElementType::int32:
      return load<int32_t>(bytes);
    case ElementType::uint32:
      return load<uint32_t>(bytes);
    case ElementType::int64:
      return json_number(load<int64_t>(bytes));
    case ElementType::uint64:
      return json_number(load<uint64_t>(bytes));
    case ElementType::bfloat16: {  // the upper half of a float
      const uint32_t bits = static_cast<uint32_t>(load<uint16_t>(bytes)) << 16;
      return json_number(load<float>(reinterpret_cast<const std::byte*>(&bits)));
    }
    case ElementType::float32:
      return json_number(load<float>(bytes));
    case ElementType::float64:
      return json_number(load<double>(bytes));
  }
  return nullptr;
}

// An array is a list of its elements.
Json field_value(const FieldInfo& field, const std::byte* bytes) {
  if (field.element_bytes == 0 || field.element == ElementType::other) return scalar_value(field.element, bytes);
  Json list = Json::array();
  for (size_t at = 0; at < field.bytes; at += field.element_bytes)
    list.push_back(scalar_value(field.element, bytes + at));
  return list;
}

// How many elements a memory argument has: a role field says it, and of a foreign kernel's pointer the use.
uint64_t elements_of(const PlanNode& node, const FieldInfo& field) {
  if (field.bytes == sizeof(RoleField)) return load<RoleField>(node.arguments.data() + field.offset).count;
  for (const Use& use : node.uses)
    if (use.field == field.name) return use.bytes / field.element_bytes;
  return 0;
}

Json arguments_of(const PlanNode& node) {
  Json arguments = Json::array();
  for (const FieldInfo& field : node.fields) {
    Json argument = {{"field", field.name}, {"role", to_string(field.role)}, {"type", to_string(field.element)}};
    const std::byte* bytes = node.arguments.data() + field.offset;
    if (!is_memory(field.role))
      argument["value"] = field_value(field, bytes);
    else if (field.role != Role::condition)
      argument["count"] = elements_of(node, field);
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

Json uses_of(const Plan& plan, const PlanNode& node) {
  Json uses = Json::array();
  for (const Use& use : node.uses) {
    Json& json = uses.emplace_back(Json{{"field", use.field},
                                        {"buffer", plan.buffers[use.buffer].range.name},
                                        {"offset", use.offset},
                                        {"bytes", use.bytes},
                                        {"access", nodewright::to_string(use.access)}});
    if (use.settled) json["settled"] = true;
    if (use.peer != PeerUse::none) json["peer"] = use.peer == PeerUse::out ? "out" : "in";
  }
  return uses;
}

// Those that are not the default.
Json attributes_of(const KernelAttributes& attributes) {
  const KernelAttributes none;
  Json json = Json::object();
  if (attributes.cluster != none.cluster) json["cluster"] = attributes.cluster;
  if (attributes.cooperative) json["cooperative"] = true;
  if (attributes.device_updatable) json["device_updatable"] = true;
  if (attributes.priority != none.priority) json["priority"] = attributes.priority;
  if (attributes.shared_carveout_percent != none.shared_carveout_percent)
    json["shared_carveout_percent"] = attributes.shared_carveout_percent;
  return json;
}

Json copy_of(const CopyParameters& copy) {
  Json json = {{"bytes", copy.bytes},
               {"rows", copy.rows},
               {"from", copy.from_host ? "host" : "device"},
               {"to", copy.to_host ? "host" : "device"}};
  if (copy.slices > 1) json["slices"] = copy.slices;
  return json;
}

Json fill_of(const FillParameters& fill) {
  return {{"value", fill.value}, {"element_bytes", fill.element_bytes}, {"count", fill.count}, {"rows", fill.rows}};
}

Json conditional_of(const Plan& plan, const PlanNode& node) {
  Json json = {{"type", nodewright::to_string(node.conditional)}};
  const auto condition = std::ranges::lower_bound(plan.conditions, node.condition, {}, &ConditionInfo::address);
  if (condition != plan.conditions.end() && condition->address == node.condition) {
    json["default_value"] = condition->default_value;
    json["reset_each_launch"] = condition->reset_each_launch;
  }
  return json;
}

// Without the plans inside it.
Json json_of(const Plan& plan, const PlanNode& node) {
  const LaunchShape& shape = node.shape;
  Json json = {{"id", node.id},
               {"name", node.name},
               {"kind", nodewright::to_string(node.kind)},
               {"kernel", node.kernel_name()},
               {"layer", node.layer()},
               {"grid", {shape.grid[0], shape.grid[1], shape.grid[2]}},
               {"block", {shape.block[0], shape.block[1], shape.block[2]}},
               {"shared_bytes", shape.shared_bytes},
               {"bytes_read", node.traffic.bytes_read},
               {"bytes_written", node.traffic.bytes_written},
               {"uses", uses_of(plan, node)}};
  if (node.kind == NodeKind::kernel) {
    json["waits_for_inputs"] = node.waits_for_inputs;
    if (node.exchange) json["exchange"] = *node.exchange;
    if (node.kernel->releases_after_wait) json["releases_after_wait"] = true;
    if (!node.kernel->request.name.empty()) json["request"] = nodewright::to_string(node.kernel->request);
    if (node.attributes != KernelAttributes{}) json["attributes"] = attributes_of(node.attributes);
    json["arguments"] = arguments_of(node);
  }
  if (node.kind == NodeKind::memcpy) json["copy"] = copy_of(node.copy);
  if (node.kind == NodeKind::memset) json["fill"] = fill_of(node.fill);
  if (node.kind == NodeKind::conditional) json["conditional"] = conditional_of(plan, node);
  for (const ValueOperation& operation : node.values) json["values"].push_back(nodewright::describe(operation));
  if (node.semaphore.semaphore != nullptr) json["semaphore_value"] = node.semaphore.value;
  if (node.kind == NodeKind::library) json["library"] = node.library->what;
  if (node.kind == NodeKind::child) json["patchable_inside"] = node.patchable_inside;
  if (node.read != nullptr && !node.read->what.empty()) json["what"] = node.read->what;
  return json;
}

Json json_of(const Plan& plan, const Edge& edge) {
  Json reasons = Json::array();
  for (const Reason& reason : edge.reasons) reasons.push_back(describe(plan, reason));
  Json json = {{"from", edge.from},
               {"to", edge.to},
               {"type", nodewright::to_string(edge.type)},
               {"reasons", std::move(reasons)}};
  if (edge.type == EdgeType::other)
    json["driver"] = {{"type", edge.driver_type}, {"from_port", edge.from_port}, {"to_port", edge.to_port}};
  return json;
}

Json buffers_of(const Plan& plan) {
  const auto lifetimes = buffer_lifetimes(plan);
  Json buffers = Json::array();
  for (size_t id = 0; id < plan.buffers.size(); ++id) {
    const Buffer& buffer = plan.buffers[id];
    Json& json = buffers.emplace_back(Json{{"name", buffer.range.name},
                                           {"bytes", buffer.range.bytes},
                                           {"kind", buffer.range.kind},
                                           {"live_in", buffer.live_in},
                                           {"live_out", buffer.live_out}});
    if (lifetimes[id]) json["needed"] = {lifetimes[id]->first, lifetimes[id]->last};
  }
  return buffers;
}

// From node `first`, `times` blocks of `count` nodes that are the same; and the same for each plan inside a node.
Json folds_of(const Plan& plan) {
  Json runs = Json::array(), bodies = Json::object();
  for (const BlockRun& run : fold_layers(plan))
    if (run.blocks.size() > 1)
      runs.push_back({{"first", run.blocks[0].first}, {"count", run.blocks[0].count}, {"times", run.blocks.size()}});
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies) bodies[std::to_string(node.id)].push_back(folds_of(*body));
  return {{"runs", std::move(runs)}, {"bodies", std::move(bodies)}};
}

std::string describe(const Device& device) {
  const DeviceProperties& properties = device.properties();
  return fmt::format("{}, compute capability {}.{}, {} SMs", properties.name, properties.cc_major, properties.cc_minor,
                     properties.sm_count);
}

// Before the lists of a plan.
Json head_of(const Plan& plan) {
  Json facts = Json::object();
  for (const auto& [what, is] : plan.facts) facts[what] = is;
  const MemoryPeak peak = memory_peak(plan);
  Json json = {{"name", plan.name},
               {"facts", std::move(facts)},
               {"hash", plan_hash(plan)},
               {"peak", {{"bytes", peak.bytes}, {"node", peak.node}}}};
  for (const KeptObject& kept : plan.kept) json["kept"].push_back(kept.name);
  return json;
}

// After the lists of the outermost plan.
Json tail_of(const Plan& plan, const PlanTimings* timings, const PlanFacts& about) {
  Json texts = Json::object();
  for (const auto& [what, is] : about) texts[what] = is;
  return {{"device", plan.device == nullptr ? Json(nullptr) : Json(describe(*plan.device))},
          {"about", std::move(texts)},
          {"folds", folds_of(plan)},
          {"timings", timings == nullptr ? Json(nullptr) : Json::parse(to_json(*timings, plan))}};
}

// The document as print() writes it with an indent of 2, an entry at a time: a plan of many nodes is never a value as a
// whole.
class DocumentText {
 public:
  // Everything but what only the outermost plan has. `spaces`: before the plan's closing brace.
  void begin_plan(const Plan& plan, size_t spaces) {
    out_ += '{';
    members(head_of(plan), spaces, true);
    list("buffers", spaces, buffers_of(plan), [&](const Json& buffer) { append(buffer, spaces + 4); });
    list("nodes", spaces, plan.nodes, [&](const PlanNode& node) { append_node(plan, node, spaces + 4); });
    list("edges", spaces, plan.edges, [&](const Edge& edge) { append(json_of(plan, edge), spaces + 4); });
  }
  void members(const Json& object, size_t spaces, bool is_first = false) {
    for (const auto& [key, value] : object.items()) {
      begin(key, spaces, std::exchange(is_first, false));
      append(value, spaces + 2);
    }
  }
  void end_plan(size_t spaces) { line(spaces) += '}'; }
  std::string text() && { return std::move(out_ += '\n'); }

 private:
  std::string& line(size_t spaces) { return (out_ += '\n').append(spaces, ' '); }

  void begin(const std::string& key, size_t spaces, bool is_first = false) {
    if (!is_first) out_ += ',';
    line(spaces + 2) += '"' + key + "\": ";
  }

  template <class Entries, class Append>
  void list(const std::string& key, size_t spaces, const Entries& entries, const Append& append_entry) {
    begin(key, spaces);
    out_ += '[';
    bool is_first = true;
    for (const auto& entry : entries) {
      if (!std::exchange(is_first, false)) out_ += ',';
      line(spaces + 4);
      append_entry(entry);
    }
    if (!is_first) line(spaces + 2);
    out_ += ']';
  }

  void append_node(const Plan& plan, const PlanNode& node, size_t spaces) {
    append(json_of(plan, node), spaces);
    if (node.bodies.empty()) return;
    out_.resize(out_.size() - spaces - 2);  // the closing brace on its line
    list("bodies", spaces, node.bodies, [&](const std::shared_ptr<const Plan>& body) {
      begin_plan(*body, spaces + 4);
      end_plan(spaces + 4);
    });
    end_plan(spaces);
  }

  // Its lines but the first begin with `spaces` more, which Json::dump cannot do.
  void append(const Json& value, size_t spaces) {
    nlohmann::detail::serializer<Json> serializer(nlohmann::detail::output_adapter<char>(out_), ' ',
                                                  Json::error_handler_t::replace);
    serializer.dump(value, true, false, 2, static_cast<unsigned>(spaces));
  }

  std::string out_;
};

}  // namespace

nlohmann::ordered_json json_of(const Plan& plan) {
  Json nodes = Json::array(), edges = Json::array();
  for (const PlanNode& node : plan.nodes) {
    Json& json = nodes.emplace_back(json_of(plan, node));
    for (const auto& body : node.bodies) json["bodies"].push_back(json_of(*body));
  }
  for (const Edge& edge : plan.edges) edges.push_back(json_of(plan, edge));
  Json json = head_of(plan);
  json["buffers"] = buffers_of(plan);
  json["nodes"] = std::move(nodes);
  json["edges"] = std::move(edges);
  return json;
}

nlohmann::ordered_json document_of(const Plan& plan, const PlanTimings* timings, const PlanFacts& about) {
  Json json = json_of(plan), tail = tail_of(plan, timings, about);
  for (auto& [key, value] : tail.items()) json[key] = std::move(value);
  return json;
}

std::string print(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string to_json(const Plan& plan, const PlanTimings* timings, const PlanFacts& about) {
  DocumentText text;
  text.begin_plan(plan, 0);
  text.members(tail_of(plan, timings, about), 0);
  text.end_plan(0);
  return std::move(text).text();
}

}  // namespace nodewright
