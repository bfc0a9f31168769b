// plan_of: the way back from to_json.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/dump/dump_reader.h"
#include "graph/dump/element_types.h"
#include "graph/dump/plan_json.h"
#include "graph/edges/nested_uses.h"
#include "graph/read/read_graph.h"
#include "runtime/memory/array_places.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kFirstBuffer = 1 << 20;  // of buffers; any will do
constexpr uint64_t kBufferPage = 4096;      // and a page between two of them

// What the nodes of such a plan refer to.
struct DumpedKernels {
  std::deque<LoadedKernel> kernels;
  std::deque<std::vector<FieldInfo>> fields;
};

size_t element_bytes(ElementType type) {
  return with_element(type,
                      [](auto element) { return std::is_null_pointer_v<decltype(element)> ? 0 : sizeof element; });
}

template <class T>
void append_value(std::pmr::vector<std::byte>& bytes, T value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

class PlanMaker {
 public:
  explicit PlanMaker(const std::string& source) : source_(source) {}

  Plan make(const Json& json) {
    Plan plan;
    plan.name = json["name"];
    plan.read = kernels_;
    is_read_ = json.value("read", false) || is_read_;
    for (const auto& [what, is] : json["facts"].items()) plan.facts.emplace_back(what, is.get<std::string>());
    if (json.contains("kept"))
      for (const Json& name : json["kept"]) plan.kept.push_back({name, kernels_});
    std::map<std::string, uint32_t> buffers;
    for (const Json& buffer : json["buffers"]) {
      buffers.emplace(buffer["name"], static_cast<uint32_t>(plan.buffers.size()));
      plan.buffers.push_back({.range = range_of(buffer), .live_in = buffer["live_in"], .live_out = buffer["live_out"]});
    }
    for (const Json& node : json["nodes"]) add_node(plan, node, buffers);
    for (const Json& edge : json["edges"]) add_edge(plan, edge, buffers);
    std::ranges::sort(plan.conditions, {}, &ConditionInfo::address);
    return plan;
  }

 private:
  [[noreturn]] void refuse(std::string detail) const { refuse_dump(source_, std::move(detail)); }

  // The value from `first` to `last` that `word_of` calls `word`.
  template <class T, class WordOf>
  T value_of(const std::string& word, T first, T last, const WordOf& word_of) const {
    for (auto value = static_cast<int>(first); value <= static_cast<int>(last); ++value)
      if (word_of(static_cast<T>(value)) == word) return static_cast<T>(value);
    refuse(fmt::format("'{}' means nothing", word));
  }
  template <class T>
  T value_of(const std::string& word, T first, T last) const {
    return value_of(word, first, last, [](T value) { return to_string(value); });
  }

  // A buffer that plans inside each other share lies at one place. Conditions and what orders loops lie where plans
  // have them.
  NamedRange range_of(const Json& buffer) {
    const std::string name = buffer["name"], kind = buffer["kind"];
    const uint64_t bytes = buffer["bytes"];
    constexpr std::string_view kLoopsOf = "loops of ";
    if (kind == "order" && name.starts_with(kLoopsOf))
      return {name, loops_address(name.substr(kLoopsOf.size())), bytes, kind};
    uint64_t& next = kind == "condition" ? next_condition_ : next_address_;
    const auto [place, is_new] = places_.emplace(std::tuple(name, kind, bytes), next);
    if (is_new && bytes > (uint64_t{1} << 56) - next_address_) refuse("its buffers have too many bytes");
    if (is_new) next += kind == "condition" ? 2 * kConditionBytes : (bytes / kBufferPage + 2) * kBufferPage;
    return {name, place->second, bytes, kind};
  }

  Use use_of(const Plan& plan, const Json& json, const std::map<std::string, uint32_t>& buffers) const {
    const auto buffer = buffers.find(json["buffer"]);
    if (buffer == buffers.end()) refuse(fmt::format("a use names no buffer of plan '{}'", plan.name));
    Use use{.field = kept_name(json["field"].get<std::string>()),
            .buffer = buffer->second,
            .offset = json["offset"],
            .bytes = json["bytes"]};
    const uint64_t held = plan.buffers[use.buffer].range.bytes;
    if (use.offset > held || use.bytes > held - use.offset || use.bytes == 0)
      refuse(fmt::format("a use goes beyond the {} bytes of '{}'", held, buffer->first));
    return use;
  }

  void add_node(Plan& plan, const Json& json, const std::map<std::string, uint32_t>& buffers) {
    PlanNode& node = plan.nodes.emplace_back();
    node.id = json["id"];
    node.name = json["name"];
    node.layer_chars = static_cast<uint32_t>(json["layer"].get_ref<const std::string&>().size());
    if (node.layer_chars > node.name.size() || node.layer() != json["layer"])
      refuse(fmt::format("node '{}' does not begin with its layer", node.name));
    node.kind = value_of(json["kind"], NodeKind::kernel, NodeKind::other);
    for (size_t i = 0; i < 3; ++i) {
      node.shape.grid[i] = json["grid"][i];
      node.shape.block[i] = json["block"][i];
    }
    node.shape.shared_bytes = json["shared_bytes"];
    node.traffic = {json["bytes_read"], json["bytes_written"]};
    for (const Json& use_json : json["uses"]) {
      Use& use = node.uses.emplace_back(use_of(plan, use_json, buffers));
      use.access = value_of(use_json["access"], Access::frozen, Access::inout);
      use.settled = use_json.value("settled", false);
      if (use_json.contains("peer")) use.peer = use_json["peer"] == "out" ? PeerUse::out : PeerUse::in;
    }
    for (const Json& body : json.value("bodies", Json::array()))
      node.bodies.push_back(std::make_shared<const Plan>(make(body)));
    const bool nested = node.kind == NodeKind::child || node.kind == NodeKind::conditional;
    if (nested == node.bodies.empty() || (node.kind == NodeKind::allocate && node.uses.empty()))
      refuse(fmt::format("node '{}' lacks what it holds", node.name));
    add_details(plan, node, json);
    if (!is_read_) return;
    auto read = std::make_shared<ReadNode>();
    read->what = json.value("what", "");
    if (json.contains("possible"))
      for (const Json& use : json["possible"]) read->possible.push_back(use_of(plan, use, buffers));
    read->pointers = std::exchange(node_pointers_, {});
    node.read = std::move(read);
  }

  // An end in an array: a handle that nothing opens, and a shape in which the address lies at the dump's origin.
  void read_array_end(const Json& copy, const std::string& end, CUarray& array, uint64_t& address, uint64_t& pitch,
                      uint64_t& height) const {
    if (copy.at(end) != "array") return;
    const Json& at = copy.at(end + "_origin");
    const uint64_t x = at.at(0), y = at.at(1), z = at.at(2);
    pitch = x % kArrayBytes + 1, height = y % kArrayBytes + 1;
    address = (z * height + y) * pitch + x;
    const ArrayOrigin origin = origin_of(address, pitch, height);
    if (origin.x_bytes != x || origin.y != y || origin.z != z)
      refuse(fmt::format("'{}_origin' ({},{},{}) lies in no array", end, x, y, z));
    array = reinterpret_cast<CUarray>(1);
  }

  void add_details(Plan& plan, PlanNode& node, const Json& json) {
    switch (node.kind) {
      case NodeKind::kernel:
        add_kernel(node, json);
        break;
      case NodeKind::memcpy: {
        const Json& copy = json.at("copy");
        node.copy.bytes = copy.at("bytes");
        node.copy.rows = copy.at("rows");
        node.copy.slices = copy.value("slices", uint64_t{1});
        node.copy.from_host = copy.at("from") == "host";
        node.copy.to_host = copy.at("to") == "host";
        read_array_end(copy, "from", node.copy.from_array, node.copy.from, node.copy.from_pitch, node.copy.from_height);
        read_array_end(copy, "to", node.copy.to_array, node.copy.to, node.copy.to_pitch, node.copy.to_height);
        break;
      }
      case NodeKind::memset: {
        const Json& fill = json.at("fill");
        node.fill.value = fill.at("value");
        node.fill.element_bytes = fill.at("element_bytes");
        node.fill.count = fill.at("count");
        node.fill.rows = fill.at("rows");
        break;
      }
      case NodeKind::conditional: {
        const Json& conditional = json.at("conditional");
        node.conditional = value_of(conditional.at("type"), ConditionalKind::if_, ConditionalKind::switch_);
        node.condition = next_condition_;
        for (const Use& use : node.uses)
          if (use.field == kConditionField) node.condition = plan.buffers[use.buffer].range.address;
        if (node.condition == next_condition_) next_condition_ += 2 * kConditionBytes;
        if (conditional.contains("default_value"))
          plan.conditions.push_back(
              {node.condition, conditional["default_value"], conditional.at("reset_each_launch")});
        break;
      }
      case NodeKind::values:
        for (const Json& text : json.at("values")) node.values.push_back(operation_of(text));
        break;
      case NodeKind::semaphore_signal:
      case NodeKind::semaphore_wait:
        // Only its value means something.
        node.semaphore = {reinterpret_cast<CUexternalSemaphore>(kernels_.get()), json.at("semaphore_value")};
        break;
      case NodeKind::library:
        node.library = std::make_shared<const LibraryCall>(LibraryCall{.what = json.at("library").get<std::string>()});
        break;
      case NodeKind::child:
        node.patchable_inside = json.value("patchable_inside", false);
        break;
      default:
        break;
    }
  }

  ValueOperation operation_of(const std::string& text) const {
    ValueOperation operation{.bytes = text.starts_with("64") ? 8u : 4u};
    const size_t digits = text.rfind("0x");
    if (digits != std::string::npos)
      std::from_chars(text.data() + digits + 2, text.data() + text.size(), operation.value, 16);
    if (describe(operation) == text) return operation;
    operation.waits = true;
    operation.until = value_of(text, Until::at_least, Until::any_zero, [&](Until until) {
      operation.until = until;
      return describe(operation);
    });
    return operation;
  }

  void add_kernel(PlanNode& node, const Json& json) {
    const std::string name = json["kernel"], request = json.value("request", "");
    const bool releases = json.value("releases_after_wait", false);
    const auto [found, is_new] = kernel_of_.emplace(std::tuple(name, request, releases), nullptr);
    if (is_new) {
      LoadedKernel& kernel = kernels_->kernels.emplace_back();
      kernel.name = name;
      kernel.request.name = request;  // all of it: to_string prints the name first
      kernel.releases_after_wait = releases;
      found->second = &kernel;
    }
    node.kernel = found->second;
    node.waits_for_inputs = json.at("waits_for_inputs");
    if (json.contains("exchange")) node.exchange = json["exchange"].get<uint32_t>();
    const Json attributes = json.value("attributes", Json::object());
    node.attributes.cluster = attributes.value("cluster", node.attributes.cluster);
    node.attributes.cooperative = attributes.value("cooperative", false);
    node.attributes.device_updatable = attributes.value("device_updatable", false);
    node.attributes.green.multiprocessors = attributes.value("green_multiprocessors", 0u);
    node.attributes.priority = attributes.value("priority", 0);
    node.attributes.shared_carveout_percent = attributes.value("shared_carveout_percent", -1);
    std::vector<FieldInfo>& fields = kernels_->fields.emplace_back();
    for (const Json& argument : json.at("arguments")) fields.push_back(add_argument(node, argument));
    node.fields = fields;
  }

  // Appends the argument's bytes to the node's.
  FieldInfo add_argument(PlanNode& node, const Json& json) {
    FieldInfo field{};
    field.name = kept_name(json["field"].get<std::string>());
    field.offset = node.arguments.size();
    field.role = value_of(json["role"], Role::scalar, Role::exchange_number, role_word);
    field.element = value_of(json["type"], ElementType::other, ElementType::float64, type_word);
    if (json.contains("hex")) {
      add_hex(node, json["hex"]);
    } else if (is_memory(field.role)) {
      append_value(node.arguments, RoleField{0, json.value("count", uint64_t{0})});
      field.element_bytes = std::max<size_t>(element_bytes(field.element), 1);
    } else {
      const Json& value = json.at("value");
      if (value.is_array()) field.element_bytes = element_bytes(field.element);
      if (!value.is_array()) add_scalar(node, field.element, value);
      for (const Json& one : value.is_array() ? value : Json::array()) add_scalar(node, field.element, one);
    }
    field.bytes = node.arguments.size() - field.offset;
    return field;
  }

  // All of `text` as a number.
  template <class T>
  T parsed(std::string_view text, int base = 10) const {
    T number{};
    const char* end = text.data() + text.size();
    std::from_chars_result done{};
    if constexpr (std::is_floating_point_v<T>)
      done = std::from_chars(text.data(), end, number);
    else
      done = std::from_chars(text.data(), end, number, base);
    if (done.ec != std::errc() || done.ptr != end) refuse(fmt::format("'{}' is no number of its kind", text));
    return number;
  }

  // Those that no double holds are strings.
  template <class T>
  T number_of(const Json& value) const {
    return value.is_string() ? parsed<T>(value.get_ref<const std::string&>()) : value.get<T>();
  }

  void add_hex(PlanNode& node, const std::string& hex) {
    constexpr std::string_view kPointer = "................";
    for (size_t at = 0; at < hex.size();) {
      const bool is_pointer = hex.compare(at, kPointer.size(), kPointer) == 0;
      if (is_pointer) node_pointers_.push_back(static_cast<uint32_t>(node.arguments.size()));
      const size_t digits = is_pointer ? kPointer.size() : 2;
      for (size_t i = 0; i < digits; i += 2)
        node.arguments.push_back(is_pointer ? std::byte{} : std::byte{parsed<uint8_t>(hex.substr(at, 2), 16)});
      at += digits;
    }
  }

  void add_scalar(PlanNode& node, ElementType type, const Json& value) const {
    with_element(type, [&](auto element) {
      using T = decltype(element);
      if constexpr (std::is_same_v<T, bool>)
        append_value(node.arguments, static_cast<uint8_t>(value.get<bool>()));
      else if constexpr (std::is_same_v<T, bf16>)  // the upper half of a float
        append_value(node.arguments, static_cast<uint16_t>(std::bit_cast<uint32_t>(number_of<float>(value)) >> 16));
      else if constexpr (!std::is_null_pointer_v<T>)
        append_value(node.arguments, number_of<T>(value));
    });
  }

  void add_edge(Plan& plan, const Json& json, const std::map<std::string, uint32_t>& buffers) {
    Edge& edge = plan.edges.emplace_back();
    edge.from = json["from"];
    edge.to = json["to"];
    edge.type = value_of(json["type"], EdgeType::full, EdgeType::other);
    if (edge.type == EdgeType::other) {
      const Json& driver = json.at("driver");
      edge.driver_type = driver.at("type");
      edge.from_port = driver.at("from_port");
      edge.to_port = driver.at("to_port");
    }
    for (const Json& reason : json["reasons"]) edge.reasons.push_back(reason_of(reason, buffers));
  }

  // "RAW residual[0,8192)", "declared".
  Reason reason_of(const std::string& text, const std::map<std::string, uint32_t>& buffers) const {
    const size_t space = text.find(' '), open = text.rfind('['), comma = text.rfind(',');
    Reason reason{.hazard = value_of(text.substr(0, space), Hazard::raw, Hazard::serial)};
    if (space == std::string::npos) return reason;
    if (open == std::string::npos || comma == std::string::npos || open < space || comma < open || !text.ends_with(')'))
      refuse(fmt::format("'{}' is no reason of an edge", text));
    const auto buffer = buffers.find(text.substr(space + 1, open - space - 1));
    if (buffer == buffers.end()) refuse(fmt::format("'{}' names no buffer", text));
    const std::string_view range = std::string_view(text).substr(open + 1, text.size() - open - 2);
    reason.offset = parsed<uint64_t>(range.substr(0, comma - open - 1));
    reason.buffer = buffer->second;
    reason.bytes = parsed<uint64_t>(range.substr(comma - open)) - reason.offset;
    return reason;
  }

  const std::string& source_;
  std::shared_ptr<DumpedKernels> kernels_ = std::make_shared<DumpedKernels>();
  bool is_read_ = false;
  std::map<std::tuple<std::string, std::string, uint64_t>, uint64_t> places_;
  uint64_t next_address_ = kFirstBuffer, next_condition_ = kConditionBase;
  std::map<std::tuple<std::string, std::string, bool>, const LoadedKernel*> kernel_of_;
  std::vector<uint32_t> node_pointers_;  // of the node that is being made
};

}  // namespace

Plan plan_of(const DumpText& dump) {
  const Json json = read_dump(dump);
  try {
    return PlanMaker(dump.source).make(json);
  } catch (const Json::exception& problem) {
    refuse_dump(dump.source, problem.what());
  }
}

}  // namespace nodewright
