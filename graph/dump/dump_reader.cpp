#include "graph/dump/dump_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/error.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;
using Type = Json::value_t;

constexpr int kMostDepth = 16;  // plans inside plans; the driver's own limit is below that

class DumpCheck {
 public:
  explicit DumpCheck(const std::string& source) : source_(source) {}

  [[noreturn]] void refuse(std::string detail) const { refuse_dump(source_, std::move(detail)); }

  void check_document(const Json& json) const {
    check_plan(json, "the plan", 0);
    check_folds(json, member(json, "folds", Type::object, "the plan"), "the plan");
    for (const auto& [what, is] : member(json, "about", Type::object, "the plan").items())
      if (!is.is_string()) refuse(fmt::format("\"about\" has no text \"{}\"", what));
    if (json.value("device", Json(nullptr)).type() != Type::null) member(json, "device", Type::string, "the plan");
    if (const auto timings = json.find("timings"); timings != json.end() && !timings->is_null())
      check_timings(*timings, json);
  }

 private:
  // `where`: text, or a function that makes it, called where something is wrong.
  template <class Where>
  static std::string text_of(const Where& where) {
    if constexpr (std::is_invocable_v<Where>)
      return where();
    else
      return where;
  }

  template <class Where>
  const Json& member(const Json& object, const char* key, Type type, const Where& where) const {
    const auto found = object.find(key);
    if (found == object.end() || found->type() != type)
      refuse(fmt::format("{} has no {} \"{}\"", text_of(where), words(type), key));
    return *found;
  }

  static const char* words(Type type) {
    switch (type) {
      case Type::object:
        return "object";
      case Type::array:
        return "list";
      case Type::string:
        return "text";
      case Type::boolean:
        return "true or false";
      default:
        return "number";
    }
  }

  template <class Where>
  uint64_t count(const Json& object, const char* key, const Where& where) const {
    const Json& number = member(object, key, Type::number_unsigned, where);
    return number.get<uint64_t>();
  }

  void check_plan(const Json& json, const std::string& where, int depth) const {
    if (!json.is_object()) refuse(where + " is not a JSON object");
    if (depth > kMostDepth) refuse(fmt::format("there are more than {} plans inside each other", kMostDepth));
    member(json, "name", Type::string, where);
    member(json, "hash", Type::string, where);
    const Json& peak = member(json, "peak", Type::object, where);
    count(peak, "bytes", where + "'s \"peak\"");
    count(peak, "node", where + "'s \"peak\"");
    member(json, "facts", Type::object, where);
    if (json.contains("read")) member(json, "read", Type::boolean, where);
    if (json.contains("kept"))
      for (const Json& name : member(json, "kept", Type::array, where))
        if (!name.is_string()) refuse(where + " keeps an object whose name is no text");
    check_each(json, "buffers", where, [&](const Json& buffer, const auto& at) { check_buffer(buffer, at); });
    check_each(json, "nodes", where, [&](const Json& node, const auto& at) { check_node(node, at, depth); });
    const Json& list = json["nodes"];
    const size_t nodes = list.size();
    check_each(json, "edges", where, [&](const Json& edge, const auto& at) { check_edge(edge, at, nodes); });
    for (size_t id = 0; id < nodes; ++id)
      if (list[id]["id"] != id) refuse(fmt::format("{}: node {} has another id", where, id));
  }

  template <class Where, class Check>
  void check_each(const Json& object, const char* key, const Where& where, const Check& check) const {
    const Json& list = member(object, key, Type::array, where);
    for (size_t i = 0; i < list.size(); ++i) {
      const auto at = [&] { return fmt::format("entry {} of \"{}\"", i, key); };
      if (!list[i].is_object()) refuse(at() + " is not an object");
      check(list[i], at);
    }
  }

  template <class Where>
  void check_buffer(const Json& buffer, const Where& at) const {
    member(buffer, "name", Type::string, at);
    count(buffer, "bytes", at);
    member(buffer, "kind", Type::string, at);
    member(buffer, "live_in", Type::boolean, at);
    member(buffer, "live_out", Type::boolean, at);
  }

  template <class Where>
  void check_node(const Json& node, const Where& at, int depth) const {
    count(node, "id", at);
    for (const char* key : {"name", "kind", "kernel", "layer"}) member(node, key, Type::string, at);
    for (const char* key : {"grid", "block"}) {
      const Json& shape = member(node, key, Type::array, at);
      if (shape.size() != 3) refuse(fmt::format("\"{}\" of {} has not 3 sizes", key, at()));
      for (const Json& size : shape)
        if (!size.is_number_unsigned()) refuse(fmt::format("\"{}\" of {} has an entry that is no size", key, at()));
    }
    for (const char* key : {"shared_bytes", "bytes_read", "bytes_written"}) count(node, key, at);
    const auto check_use = [&](const Json& use, const auto& where) {
      const auto inside = [&] { return at() + ", " + where(); };
      for (const char* key : {"field", "buffer"}) member(use, key, Type::string, inside);
      for (const char* key : {"offset", "bytes"}) count(use, key, inside);
    };
    check_each(node, "uses", at, [&](const Json& use, const auto& where) {
      check_use(use, where);
      member(use, "access", Type::string, [&] { return at() + ", " + where(); });
    });
    if (node.contains("possible")) check_each(node, "possible", at, check_use);
    if (node.contains("request")) member(node, "request", Type::string, at);
    if (node.contains("arguments"))
      check_each(node, "arguments", at, [&](const Json& argument, const auto& where) {
        const auto inside = [&] { return at() + ", " + where(); };
        for (const char* key : {"field", "role", "type"}) member(argument, key, Type::string, inside);
        if (argument.contains("hex")) member(argument, "hex", Type::string, inside);
      });
    if (!node.contains("bodies")) return;
    const Json& bodies = member(node, "bodies", Type::array, at);
    for (size_t i = 0; i < bodies.size(); ++i) check_plan(bodies[i], fmt::format("body {} of {}", i, at()), depth + 1);
  }

  template <class Where>
  void check_edge(const Json& edge, const Where& at, size_t nodes) const {
    for (const char* key : {"from", "to"})
      if (count(edge, key, at) >= nodes) refuse(fmt::format("\"{}\" of {} is none of {} nodes", key, at(), nodes));
    member(edge, "type", Type::string, at);
    for (const Json& reason : member(edge, "reasons", Type::array, at))
      if (!reason.is_string()) refuse(at() + " has a reason that is no text");
  }

  void check_folds(const Json& plan, const Json& folds, const std::string& where) const {
    size_t next = 0;
    check_each(folds, "runs", where + "'s \"folds\"", [&](const Json& run, const auto& at) {
      const uint64_t first = count(run, "first", at), nodes = count(run, "count", at), times = count(run, "times", at);
      const uint64_t most = plan["nodes"].size();
      if (first < next || first >= most || nodes == 0 || nodes > most || times > most || first + nodes * times > most)
        refuse(fmt::format("{} does not fit {} nodes", at(), most));
      next = first + nodes * times;
    });
    const Json& inside = member(folds, "bodies", Type::object, where + "'s \"folds\"");
    for (const Json& node : plan["nodes"]) {
      if (!node.contains("bodies")) continue;
      const std::string id = std::to_string(node["id"].get<uint64_t>());
      const Json& of_bodies = member(inside, id.c_str(), Type::array, where + "'s \"folds\"");
      if (of_bodies.size() != node["bodies"].size())
        refuse("\"folds\" has not one entry for each plan inside node " + id);
      for (size_t i = 0; i < of_bodies.size(); ++i)
        check_folds(node["bodies"][i], of_bodies[i], "a body of node " + id);
    }
  }

  void check_timings(const Json& timings, const Json& plan) const {
    if (!timings.is_object()) refuse("\"timings\" is not an object");
    for (const char* key : {"step_us", "plain_step_us", "peak_bytes_per_s"}) check_time(timings, key, "\"timings\"");
    check_timed_nodes(timings, plan);
  }

  void check_timed_nodes(const Json& timings, const Json& plan) const {
    const size_t nodes = plan["nodes"].size();
    check_each(timings, "nodes", "\"timings\"", [&](const Json& node, const auto& at) {
      if (count(node, "node", at) >= nodes) refuse(fmt::format("{} times none of {} nodes", at(), nodes));
      for (const char* key : {"time_us", "span_us", "overlap_us", "start_us", "end_us"}) check_time(node, key, at);
      if (!node.contains("bodies")) return;
      const Json& timed = member(node, "bodies", Type::array, at);
      const Json bodies = plan["nodes"][node["node"].get<size_t>()].value("bodies", Json::array());
      if (timed.size() != bodies.size()) refuse(fmt::format("{} does not time {} plans", at(), bodies.size()));
      for (size_t i = 0; i < timed.size(); ++i) check_timed_nodes(timed[i], bodies[i]);
    });
  }

  template <class Where>
  void check_time(const Json& object, const char* key, const Where& where) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number())
      refuse(fmt::format("{} has no number \"{}\"", text_of(where), key));
  }

  const std::string& source_;
};

}  // namespace

void refuse_dump(const std::string& source, std::string detail) {
  throw Error({.doing = "read the plan in",
               .object = source,
               .detail = std::move(detail),
               .advice = "a file of `nodewright graph --format json`",
               .fault = Fault::usage});
}

nlohmann::ordered_json read_dump(const DumpText& dump) {
  const DumpCheck check(dump.source);
  Json json = Json::parse(dump.json, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) check.refuse("it is not JSON");
  check.check_document(json);
  return json;
}

}  // namespace nodewright
