// to_json: a plan for programs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>

#include "graph/dump/element_types.h"
#include "graph/dump/graph_dump.h"
#include "graph/dump/json_text.h"
#include "graph/dump/plan_json.h"
#include "graph/edges/buffer_lifetimes.h"
#include "graph/edges/plan_fold.h"
#include "graph/edges/plan_hash.h"

namespace nodewright {

std::string_view role_word(Role role) {
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

std::string_view type_word(ElementType type) {
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

namespace {

using Json = nlohmann::ordered_json;

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
  return with_element(type, [&](auto element) -> Json {
    using T = decltype(element);
    if constexpr (std::is_null_pointer_v<T>) {
      return nullptr;
    } else if constexpr (std::is_same_v<T, bool>) {
      return load<uint8_t>(bytes) != 0;
    } else if constexpr (std::is_same_v<T, bf16>) {  // the upper half of a float
      return json_number(std::bit_cast<float>(uint32_t{load<T>(bytes).bits} << 16));
    } else {
      return json_number(load<T>(bytes));
    }
  });
}

// An array is a list of its elements.
void write_value(JsonText& json, const FieldInfo& field, const std::byte* bytes) {
  if (field.element_bytes == 0 || field.element == ElementType::other)
    return json.whole(scalar_value(field.element, bytes));
  json.array(std::views::iota(size_t{0}, field.bytes / field.element_bytes),
             [&](size_t i) { json.whole(scalar_value(field.element, bytes + i * field.element_bytes)); });
}

// How many elements a memory argument has: a role field says it, and of a foreign kernel's pointer the use.
uint64_t elements_of(const PlanNode& node, const FieldInfo& field) {
  if (field.bytes == sizeof(RoleField)) return load<RoleField>(node.arguments.data() + field.offset).count;
  for (const Use& use : node.uses)
    if (use.field == field.name) return use.bytes / field.element_bytes;
  return 0;
}

// Two digits a byte, in the order of memory; those of addresses are dots.
std::string hex_of(const ReadNode& read, const FieldInfo& field, const std::byte* bytes) {
  std::string hex;
  for (size_t at = 0; at < field.bytes; ++at)
    fmt::format_to(std::back_inserter(hex), "{:02x}", static_cast<unsigned>(bytes[at]));
  for (const uint32_t pointer : read.pointers)
    if (pointer >= field.offset && pointer < field.offset + field.bytes)
      hex.replace(2 * (pointer - field.offset), 2 * sizeof(uint64_t), 2 * sizeof(uint64_t), '.');
  return hex;
}

void write_argument(JsonText& json, const PlanNode& node, const FieldInfo& field) {
  const std::byte* bytes = node.arguments.data() + field.offset;
  json.object([&] {
    json.member("field", field.name);
    json.member("role", role_word(field.role));
    json.member("type", type_word(field.element));
    if (!is_memory(field.role))
      write_value(json.key("value"), field, bytes);
    else if (field.role != Role::condition)
      json.member("count", elements_of(node, field));
    if (node.read != nullptr) json.member("hex", hex_of(*node.read, field, bytes));
  });
}

void write_range(JsonText& json, const Plan& plan, const Use& use) {
  json.member("field", use.field);
  json.member("buffer", plan.buffers[use.buffer].range.name);
  json.member("offset", use.offset);
  json.member("bytes", use.bytes);
}

void write_use(JsonText& json, const Plan& plan, const Use& use) {
  json.object([&] {
    write_range(json, plan, use);
    json.member("access", nodewright::to_string(use.access));
    if (use.settled) json.member("settled", true);
    if (use.peer != PeerUse::none) json.member("peer", use.peer == PeerUse::out ? "out" : "in");
  });
}

// Those that are not the default.
void write_attributes(JsonText& json, const KernelAttributes& attributes) {
  const KernelAttributes none;
  json.object([&] {
    if (attributes.cluster != none.cluster) json.key("cluster").array(attributes.cluster);
    if (attributes.cooperative) json.member("cooperative", true);
    if (attributes.device_updatable) json.member("device_updatable", true);
    if (attributes.green.multiprocessors != 0) json.member("green_multiprocessors", attributes.green.multiprocessors);
    if (attributes.priority != none.priority) json.member("priority", attributes.priority);
    if (attributes.shared_carveout_percent != none.shared_carveout_percent)
      json.member("shared_carveout_percent", attributes.shared_carveout_percent);
  });
}

const char* words_of_end(bool host, CUarray array) { return array != nullptr ? "array" : host ? "host" : "device"; }

void write_copy(JsonText& json, const CopyParameters& copy) {
  json.object([&] {
    json.member("bytes", copy.bytes);
    json.member("rows", copy.rows);
    json.member("from", words_of_end(copy.from_host, copy.from_array));
    json.member("to", words_of_end(copy.to_host, copy.to_array));
    if (copy.slices > 1) json.member("slices", copy.slices);
    const auto write_origin = [&](const char* name, uint64_t address, uint64_t pitch, uint64_t height) {
      const ArrayOrigin at = origin_of(address, pitch, height);
      json.key(name).array(std::array{at.x_bytes, at.y, at.z});
    };
    if (copy.from_array != nullptr) write_origin("from_origin", copy.from, copy.from_pitch, copy.from_height);
    if (copy.to_array != nullptr) write_origin("to_origin", copy.to, copy.to_pitch, copy.to_height);
  });
}

void write_fill(JsonText& json, const FillParameters& fill) {
  json.object([&] {
    json.member("value", fill.value);
    json.member("element_bytes", fill.element_bytes);
    json.member("count", fill.count);
    json.member("rows", fill.rows);
  });
}

void write_conditional(JsonText& json, const Plan& plan, const PlanNode& node) {
  json.object([&] {
    json.member("type", nodewright::to_string(node.conditional));
    const auto condition = std::ranges::lower_bound(plan.conditions, node.condition, {}, &ConditionInfo::address);
    if (condition == plan.conditions.end() || condition->address != node.condition) return;
    json.member("default_value", condition->default_value);
    json.member("reset_each_launch", condition->reset_each_launch);
  });
}

void write_plan(JsonText& json, const Plan& plan);

void write_node(JsonText& json, const Plan& plan, const PlanNode& node) {
  json.object([&] {
    json.member("id", node.id);
    json.member("name", node.name);
    json.member("kind", nodewright::to_string(node.kind));
    json.member("kernel", node.kernel_name());
    json.member("layer", node.layer());
    json.key("grid").array(node.shape.grid);
    json.key("block").array(node.shape.block);
    json.member("shared_bytes", node.shape.shared_bytes);
    json.member("bytes_read", node.traffic.bytes_read);
    json.member("bytes_written", node.traffic.bytes_written);
    json.key("uses").array(node.uses, [&](const Use& use) { write_use(json, plan, use); });
    if (node.kind == NodeKind::kernel) {
      json.member("waits_for_inputs", node.waits_for_inputs);
      if (node.exchange) json.member("exchange", *node.exchange);
      if (node.kernel->releases_after_wait) json.member("releases_after_wait", true);
      if (!node.kernel->request.name.empty()) json.member("request", nodewright::to_string(node.kernel->request));
      if (node.attributes != KernelAttributes{}) write_attributes(json.key("attributes"), node.attributes);
      json.key("arguments").array(node.fields, [&](const FieldInfo& field) { write_argument(json, node, field); });
    }
    if (node.kind == NodeKind::memcpy) write_copy(json.key("copy"), node.copy);
    if (node.kind == NodeKind::memset) write_fill(json.key("fill"), node.fill);
    if (node.kind == NodeKind::conditional) write_conditional(json.key("conditional"), plan, node);
    if (!node.values.empty())
      json.key("values").array(node.values,
                               [&](const ValueOperation& operation) { json.value(nodewright::describe(operation)); });
    if (node.semaphore.semaphore != nullptr) json.member("semaphore_value", node.semaphore.value);
    if (node.kind == NodeKind::library) json.member("library", node.library->what);
    if (node.kind == NodeKind::child) json.member("patchable_inside", node.patchable_inside);
    if (node.read != nullptr && !node.read->what.empty()) json.member("what", node.read->what);
    if (node.read != nullptr && !node.read->possible.empty())
      json.key("possible").array(node.read->possible, [&](const Use& use) {
        json.object([&] { write_range(json, plan, use); });
      });
    if (!node.bodies.empty())
      json.key("bodies").array(
          node.bodies, [&](const std::shared_ptr<const Plan>& body) { json.object([&] { write_plan(json, *body); }); });
  });
}

void write_edge(JsonText& json, const Plan& plan, const Edge& edge) {
  json.object([&] {
    json.member("from", edge.from);
    json.member("to", edge.to);
    json.member("type", nodewright::to_string(edge.type));
    json.key("reasons").array(edge.reasons, [&](const Reason& reason) { json.value(describe(plan, reason)); });
    if (edge.type != EdgeType::other) return;
    json.key("driver").object([&] {
      json.member("type", edge.driver_type);
      json.member("from_port", edge.from_port);
      json.member("to_port", edge.to_port);
    });
  });
}

void write_buffer(JsonText& json, const Buffer& buffer, const std::optional<Lifetime>& needed) {
  json.object([&] {
    json.member("name", buffer.range.name);
    json.member("bytes", buffer.range.bytes);
    json.member("kind", buffer.range.kind);
    json.member("live_in", buffer.live_in);
    json.member("live_out", buffer.live_out);
    if (needed) json.key("needed").array(std::array{needed->first, needed->last});
  });
}

// From node `first`, `times` blocks of `count` nodes that are the same; and the same for each plan inside a node.
void write_folds(JsonText& json, const Plan& plan) {
  std::vector<BlockRun> runs = fold_layers(plan);
  std::erase_if(runs, [](const BlockRun& run) { return run.blocks.size() == 1; });
  json.object([&] {
    json.key("runs").array(runs, [&](const BlockRun& run) {
      json.object([&] {
        json.member("first", run.blocks[0].first);
        json.member("count", run.blocks[0].count);
        json.member("times", run.blocks.size());
      });
    });
    json.key("bodies").object([&] {
      for (const PlanNode& node : plan.nodes)
        if (!node.bodies.empty())
          json.key(std::to_string(node.id)).array(node.bodies, [&](const std::shared_ptr<const Plan>& body) {
            write_folds(json, *body);
          });
    });
  });
}

std::string describe(const Device& device) {
  const DeviceProperties& properties = device.properties();
  return fmt::format("{}, compute capability {}.{}, {} SMs", properties.name, properties.cc_major, properties.cc_minor,
                     properties.sm_count);
}

// The later of two facts of one name.
Json facts_of(const PlanFacts& facts) {
  Json json = Json::object();
  for (const auto& [what, is] : facts) json[what] = is;
  return json;
}

// Before the lists of a plan.
void write_head(JsonText& json, const Plan& plan) {
  const MemoryPeak peak = memory_peak(plan);
  json.member("name", plan.name);
  json.key("facts").whole(facts_of(plan.facts));
  json.member("hash", plan_hash(plan));
  json.key("peak").object([&] {
    json.member("bytes", peak.bytes);
    json.member("node", peak.node);
  });
  if (!plan.nodes.empty() && plan.nodes[0].read != nullptr) json.member("read", true);
  if (!plan.kept.empty()) json.key("kept").array(plan.kept, [&](const KeptObject& kept) { json.value(kept.name); });
}

// The members of a plan, without those that only the outermost has.
void write_plan(JsonText& json, const Plan& plan) {
  write_head(json, plan);
  const auto lifetimes = buffer_lifetimes(plan);
  json.key("buffers").array(std::views::iota(size_t{0}, plan.buffers.size()),
                            [&](size_t id) { write_buffer(json, plan.buffers[id], lifetimes[id]); });
  json.key("nodes").array(plan.nodes, [&](const PlanNode& node) { write_node(json, plan, node); });
  json.key("edges").array(plan.edges, [&](const Edge& edge) { write_edge(json, plan, edge); });
}

// Appends entry `i` of the lists of two plans to those of their documents: where the texts are the same, `alike(i)`.
template <class Write, class Alike>
void add_entries(Json& before, Json& after, const char* list, size_t in_before, size_t in_after, const Write& write,
                 const Alike& alike) {
  Json &earlier = before[list] = Json::array(), &later = after[list] = Json::array();
  const auto text_of = [&](bool is_later, size_t i) {
    JsonText json;
    write(json, is_later, i);
    return std::move(json).text();
  };
  for (size_t i = 0; i < std::max(in_before, in_after); ++i) {
    const std::string was = i < in_before ? text_of(false, i) : "", is = i < in_after ? text_of(true, i) : "";
    if (Json json = was == is ? alike(i) : Json(nullptr); !json.is_null()) {
      earlier.push_back(json);
      later.push_back(std::move(json));
      continue;
    }
    if (i < in_before) earlier.push_back(Json::parse(was));
    if (i < in_after) later.push_back(Json::parse(is));
  }
}

}  // namespace

std::pair<nlohmann::ordered_json, nlohmann::ordered_json> documents_to_compare(const Plan& before, const Plan& after) {
  const auto head_of = [](const Plan& plan) {
    JsonText json;
    json.object([&] { write_head(json, plan); });
    Json head = Json::parse(std::move(json).text());
    head["about"] = Json::object();
    return head;
  };
  std::pair<Json, Json> documents(head_of(before), head_of(after));
  const auto plan_of = [&](bool is_later) -> const Plan& { return is_later ? after : before; };
  const auto add = [&](const char* list, auto entries, const auto& write, const auto& alike) {
    add_entries(documents.first, documents.second, list, (before.*entries).size(), (after.*entries).size(), write,
                alike);
  };
  const auto earlier = buffer_lifetimes(before), later = buffer_lifetimes(after);
  add(
      "buffers", &Plan::buffers,
      [&](JsonText& json, bool is_later, size_t i) {
        write_buffer(json, plan_of(is_later).buffers[i], (is_later ? later : earlier)[i]);
      },
      [&](size_t i) -> Json {
        return {{"name", before.buffers[i].range.name}};
      });
  add(
      "nodes", &Plan::nodes,
      [&](JsonText& json, bool is_later, size_t i) { write_node(json, plan_of(is_later), plan_of(is_later).nodes[i]); },
      [&](size_t i) -> Json {
        const PlanNode& node = before.nodes[i];
        return {{"name", node.name},
                {"layer", node.layer()},
                {"bytes_read", node.traffic.bytes_read},
                {"bytes_written", node.traffic.bytes_written}};
      });
  add(
      "edges", &Plan::edges,
      [&](JsonText& json, bool is_later, size_t i) { write_edge(json, plan_of(is_later), plan_of(is_later).edges[i]); },
      [&](size_t i) -> Json {
        const Edge& edge = before.edges[i];
        for (const uint32_t end : {edge.from, edge.to})
          if (before.nodes[end].name != after.nodes[end].name) return nullptr;
        return {{"from", edge.from},
                {"to", edge.to},
                {"type", nodewright::to_string(edge.type)},
                {"reasons", Json::array()}};
      });
  return documents;
}

std::string to_json(const Plan& plan, const PlanTimings* timings, const PlanFacts& about) {
  JsonText json;
  json.object([&] {
    write_plan(json, plan);
    json.key("device").whole(plan.device == nullptr ? Json(nullptr) : Json(describe(*plan.device)));
    json.key("about").whole(facts_of(about));
    write_folds(json.key("folds"), plan);
    json.key("timings").whole(timings == nullptr ? Json(nullptr) : Json::parse(to_json(*timings, plan)));
  });
  return std::move(json).text() + "\n";
}

nlohmann::ordered_json document_of(const Plan& plan, const PlanTimings* timings, const PlanFacts& about) {
  return Json::parse(to_json(plan, timings, about));
}

std::string print(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nodewright
