#include "graph/dump/plan_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "graph/dump/dump_reader.h"
#include "graph/dump/plan_json.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;
using How = ChangedItem::How;

// A value in words: "4×1×1" for sizes, text without quotes, JSON for the rest.
std::string words_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none";
  if (!value.is_array()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string words;
  for (const Json& one : value) words += (words.empty() ? "" : "×") + words_of(one);
  return words;
}

// The properties of an item, in the order in which changes are listed.
class Properties {
 public:
  void add(std::string what, std::string is) { list_.emplace_back(std::move(what), std::move(is)); }
  void add(const std::string& what, const Json& value) {
    if (!value.is_object()) return add(what, words_of(value));
    for (const auto& [inner, is] : value.items()) add(what + " " + inner, words_of(is));
  }
  // Several under one name are one list: "a[0,4) in, b[0,4) in".
  void join(const std::string& what, const std::string& is) {
    const auto found = std::ranges::find(list_, what, &Property::first);
    if (found == list_.end()) return add(what, is);
    found->second += ", " + is;
  }

  // "saxpy[kTile=4,kHasBias=1]": each constant.
  void add_constants(const std::string& request) {
    const size_t open = request.find('['), close = request.rfind(']');
    if (open == std::string::npos || close == std::string::npos) return;
    for (size_t begin = open + 1; begin < close;) {
      const size_t end = std::min(request.find(',', begin), close);
      const std::string constant = request.substr(begin, end - begin);
      const size_t sign = std::min(constant.find('='), constant.size() - 1);
      add(std::string(kConstant) + constant.substr(0, sign), constant.substr(sign + 1));
      begin = end + 1;
    }
  }

  // Constants of two kernels are not held against each other.
  static std::vector<Change> changes(const Properties& before, const Properties& after) {
    std::vector<Change> changes;
    for (const auto& [what, is] : before.list_)
      if (const std::string then = after.get(what); then != is) changes.push_back({what, is, then});
    for (const auto& [what, is] : after.list_)
      if (before.get(what) == kNone && is != kNone) changes.push_back({what, kNone, is});
    if (before.get("kernel") != after.get("kernel"))
      std::erase_if(changes, [](const Change& change) { return change.what.starts_with(kConstant); });
    return changes;
  }

 private:
  using Property = std::pair<std::string, std::string>;
  static constexpr const char* kNone = "none";
  static constexpr std::string_view kConstant = "constant ";

  std::string get(const std::string& what) const {
    const auto found = std::ranges::find(list_, what, &Property::first);
    return found == list_.end() ? kNone : found->second;
  }

  std::vector<Property> list_;
};

struct Item {
  std::string name, layer, words;
  Properties properties;
};

Item item_of_buffer(const Json& buffer) {
  Item item{.name = buffer["name"], .layer = {}, .words = {}, .properties = {}};
  item.words = fmt::format("{} B {}", buffer["bytes"].get<uint64_t>(), buffer["kind"].get<std::string>());
  for (const char* what : {"bytes", "kind", "live_in", "live_out"}) item.properties.add(what, buffer[what]);
  return item;
}

Item item_of_node(const Json& node) {
  const std::string kernel = node["kernel"];
  Item item{.name = node["name"], .layer = node["layer"], .words = {}, .properties = {}};
  item.words = kernel.empty() ? node["kind"].get<std::string>() : "kernel " + kernel;
  static const std::set<std::string> elsewhere = {"id",        "name",   "layer",   "uses",
                                                  "arguments", "bodies", "request", "possible"};
  for (const auto& [what, is] : node.items())
    if (!elsewhere.contains(what)) item.properties.add(what, is);
  item.properties.add("bodies", Json(node.contains("bodies") ? node["bodies"].size() : 0));
  item.properties.add_constants(node.value("request", ""));
  for (const Json& use : node["uses"]) {
    const uint64_t offset = use["offset"], bytes = use["bytes"];
    item.properties.join(use["field"],
                         fmt::format("{}[{},{}) {}{}", use["buffer"].get<std::string>(), offset, offset + bytes,
                                     use["access"].get<std::string>(), use.contains("settled") ? " settled" : ""));
  }
  if (node.contains("possible"))
    for (const Json& use : node["possible"])
      item.properties.join(use["field"], fmt::format("perhaps {} from {} on", use["buffer"].get<std::string>(),
                                                     use["offset"].get<uint64_t>()));
  if (!node.contains("arguments")) return item;
  for (const Json& argument : node["arguments"]) {
    const std::string field = argument["field"];
    if (argument.contains("hex")) {
      item.properties.add(field + " bytes", argument["hex"]);
    } else if (argument.contains("value")) {
      const Json& value = argument["value"];
      item.properties.add(field, value.is_array() ? Json(value.dump()) : value);
    }
    item.properties.add(field + " type",
                        fmt::format("{} {}", argument["role"].get<std::string>(), argument["type"].get<std::string>()));
  }
  return item;
}

std::string name_of_edge(const Json& plan, const Json& edge) {
  const auto name_of = [&](const char* end) -> const std::string& {
    return plan["nodes"][edge[end].get<size_t>()]["name"].get_ref<const std::string&>();
  };
  return name_of("from") + " -> " + name_of("to");
}

Item item_of_edge(const Json& plan, const Json& edge) {
  Item item{.name = name_of_edge(plan, edge),
            .layer = plan["nodes"][edge["to"].get<size_t>()]["layer"],
            .words = edge["type"],
            .properties = {}};
  item.properties.add("type", edge["type"]);
  std::string reasons;
  for (const Json& reason : edge["reasons"]) reasons += (reasons.empty() ? "" : ", ") + reason.get<std::string>();
  item.properties.add("reasons", std::move(reasons));
  return item;
}

// How the entries of a list are distinguished. same: whether two of one name certainly have the same properties.
struct BufferItems {
  static std::string name(const Json&, const Json& buffer) { return buffer["name"]; }
  static Item item(const Json&, const Json& buffer) { return item_of_buffer(buffer); }
  static bool same(const Json& a, const Json& b) { return a == b; }
};
struct NodeItems {
  static std::string name(const Json&, const Json& node) { return node["name"]; }
  static Item item(const Json&, const Json& node) { return item_of_node(node); }
  static bool same(const Json& a, const Json& b) {  // whatever its place in the plan
    if (a.size() != b.size()) return false;
    for (auto x = a.begin(), y = b.begin(); x != a.end(); ++x, ++y)
      if (x.key() != y.key() || (x.key() != "id" && *x != *y)) return false;
    return true;
  }
};
struct EdgeItems {
  static std::string name(const Json& plan, const Json& edge) { return name_of_edge(plan, edge); }
  static Item item(const Json& plan, const Json& edge) { return item_of_edge(plan, edge); }
  static bool same(const Json& a, const Json& b) { return a["type"] == b["type"] && a["reasons"] == b["reasons"]; }
};

// The layers of a plan in their order, to tell one from its neighbours.
class Layers {
 public:
  explicit Layers(const Json& plan) {
    for (const Json& node : plan["nodes"])
      if (const std::string layer = node["layer"]; !layer.empty()) number_.try_emplace(layer, number_.size());
  }

  // `text` with `own` as *, and layers that stand before or after it as *-1, *+1. Layers are whole words between dots.
  std::string relative(const std::string& text, const std::string& own) const {
    const auto at = number_.find(own);
    if (at == number_.end()) return text;
    std::string out, word;
    const auto take = [&] {
      const auto found = number_.find(word);
      if (found == number_.end())
        out += word;
      else if (found->second == at->second)
        out += "*";
      else
        out += fmt::format("*{:+}", static_cast<int64_t>(found->second) - static_cast<int64_t>(at->second));
      word.clear();
    };
    for (const char c : text) {
      if (std::string_view(". [](),").find(c) == std::string_view::npos) {
        word += c;
        continue;
      }
      take();
      out += c;
    }
    take();
    return out;
  }

 private:
  std::map<std::string, size_t> number_;
};

class PlanComparison {
 public:
  PlanComparison(const Json& before, const Json& after, PlanDiff& diff)
      : diff_(diff), before_layers_(before), after_layers_(after) {
    compare(before, after, "");
  }

 private:
  void compare(const Json& before, const Json& after, const std::string& plan) {
    compare_items<BufferItems>(before, after, "buffers", plan, diff_.buffers);
    compare_items<NodeItems>(before, after, "nodes", plan, diff_.nodes);
    compare_items<EdgeItems>(before, after, "edges", plan, diff_.edges);
    compare_order(before, after, plan);
    compare_bodies(before, after);
  }

  template <class Items>
  static std::unordered_map<std::string, const Json*> by_name(const Json& plan, const char* list) {
    std::unordered_map<std::string, const Json*> items;
    for (const Json& json : plan[list]) items.emplace(Items::name(plan, json), &json);
    return items;
  }

  // Most items are the same: words are made of the others alone.
  template <class Items>
  void compare_items(const Json& before, const Json& after, const char* list, const std::string& plan,
                     std::vector<ChangedItem>& changed) {
    const auto earlier = by_name<Items>(before, list), later = by_name<Items>(after, list);
    for (const Json& json : after[list]) {
      const auto found = earlier.find(Items::name(after, json));
      if (found == earlier.end()) {
        add(changed, How::added, plan, Items::item(after, json), {}, after_layers_);
      } else if (!Items::same(*found->second, json)) {
        const Item item = Items::item(after, json);
        auto changes = Properties::changes(Items::item(before, *found->second).properties, item.properties);
        if (!changes.empty()) add(changed, How::changed, plan, item, std::move(changes), after_layers_);
      }
    }
    for (const Json& json : before[list])
      if (!later.contains(Items::name(before, json)))
        add(changed, How::removed, plan, Items::item(before, json), {}, before_layers_);
  }

  // A body lists the buffers of the plan around it again: differences there are listed once.
  void add(std::vector<ChangedItem>& changed, How how, const std::string& plan, const Item& item,
           std::vector<Change> changes, const Layers& layers) {
    if (&changed == &diff_.buffers && !plan.empty())
      for (const ChangedItem& told : changed)
        if (told.name == item.name && told.how == how) return;
    ChangedItem added{.how = how, .plan = plan, .name = item.name, .layer = item.layer, .words = item.words};
    added.changes = std::move(changes);
    added.line = line_of(added);
    added.folded_line = layers.relative(added.line, item.layer);
    changed.push_back(std::move(added));
  }

  static std::string line_of(const ChangedItem& item) {
    if (item.how != How::changed) return item.name + ": " + item.words;
    std::string line = item.name;
    for (const Change& change : item.changes)
      line += fmt::format("{} {} {} -> {}", line == item.name ? ":" : ";", change.what, change.before, change.after);
    return line;
  }

  // The first place where the nodes that both plans have differ in order.
  void compare_order(const Json& before, const Json& after, const std::string& plan) {
    const auto name_of = [](const Json& node) -> const std::string& {
      return node["name"].get_ref<const std::string&>();
    };
    const auto names_in_both = [&](const Json& one, const Json& other) {
      std::unordered_set<std::string_view> known;
      for (const Json& node : other["nodes"]) known.insert(name_of(node));
      std::vector<std::string_view> names;
      for (const Json& node : one["nodes"])
        if (known.contains(name_of(node))) names.push_back(name_of(node));
      return names;
    };
    const std::vector<std::string_view> earlier = names_in_both(before, after), later = names_in_both(after, before);
    for (size_t i = 0; i < std::min(earlier.size(), later.size()); ++i) {
      if (earlier[i] == later[i]) continue;
      const std::string what = plan.empty() ? "order of nodes" : "order of nodes in " + plan;
      diff_.plan.push_back({what, fmt::format("here {}", earlier[i]), fmt::format("here {}", later[i])});
      return;
    }
  }

  void compare_bodies(const Json& before, const Json& after) {
    std::unordered_map<std::string, const Json*> earlier;
    for (const Json& node : before["nodes"])
      if (node.contains("bodies")) earlier.emplace(node["name"], &node);
    for (const Json& node : after["nodes"]) {
      if (!node.contains("bodies")) continue;
      const auto found = earlier.find(node["name"].get<std::string>());
      if (found == earlier.end()) continue;
      const Json &inner_before = (*found->second)["bodies"], &inner_after = node["bodies"];
      for (size_t i = 0; i < std::min(inner_before.size(), inner_after.size()); ++i) {
        const std::string name = inner_after[i]["name"];
        compare(inner_before[i], inner_after[i], name.substr(name.find('/') + 1));  // all of it without a /
      }
    }
  }

  PlanDiff& diff_;
  Layers before_layers_, after_layers_;
};

std::vector<Change> totals_of(const Json& before, const Json& after) {
  const auto properties = [](const Json& plan) {
    Properties totals;
    uint64_t read = 0, written = 0;
    size_t programmatic = 0;
    for (const Json& node : plan["nodes"]) {
      read += node["bytes_read"].get<uint64_t>();
      written += node["bytes_written"].get<uint64_t>();
    }
    for (const Json& edge : plan["edges"]) programmatic += edge["type"] == "programmatic";
    totals.add("nodes", Json(plan["nodes"].size()));
    totals.add("edges", Json(plan["edges"].size()));
    totals.add("programmatic edges", Json(programmatic));
    totals.add("buffers", Json(plan["buffers"].size()));
    totals.add("bytes read", Json(read));
    totals.add("bytes written", Json(written));
    totals.add("peak of memory", plan["peak"]["bytes"]);
    return totals;
  };
  return Properties::changes(properties(before), properties(after));
}

std::vector<Change> about_changes(const Json& before, const Json& after) {
  const auto properties = [](const Json& plan) {
    Properties about;
    about.add("device", plan.value("device", Json(nullptr)));
    for (const auto& [what, is] : plan["about"].items()) about.add(what, is);
    return about;
  };
  return Properties::changes(properties(before), properties(after));
}

void compare_times(const Json& before, const Json& after, PlanDiff& diff) {
  if (!before.contains("timings") || !after.contains("timings") || before["timings"].is_null() ||
      after["timings"].is_null())
    return;
  diff.step = {"step", before["timings"]["plain_step_us"], after["timings"]["plain_step_us"]};
  std::map<std::string, double> earlier;
  for (const Json& timed : before["timings"]["nodes"])
    earlier[before["nodes"][timed["node"].get<size_t>()]["name"]] = timed["time_us"];
  for (const Json& timed : after["timings"]["nodes"]) {
    const std::string name = after["nodes"][timed["node"].get<size_t>()]["name"];
    if (const auto found = earlier.find(name); found != earlier.end())
      diff.times.push_back({name, found->second, timed["time_us"]});
  }
  std::ranges::stable_sort(diff.times, std::greater(),
                           [](const TimeChange& time) { return std::abs(time.after_us - time.before_us); });
}

Json json_of(const std::vector<Change>& changes) {
  Json json = Json::array();
  for (const Change& change : changes)
    json.push_back({{"what", change.what}, {"before", change.before}, {"after", change.after}});
  return json;
}

Json json_of(const std::vector<ChangedItem>& items) {
  constexpr const char* kHow[] = {"added", "removed", "changed"};
  Json json = Json::array();
  for (const ChangedItem& item : items)
    json.push_back({{"how", kHow[static_cast<size_t>(item.how)]},
                    {"plan", item.plan},
                    {"name", item.name},
                    {"words", item.words},
                    {"changes", json_of(item.changes)}});
  return json;
}

Json json_of(const TimeChange& time) {
  return {{"name", time.name}, {"before_us", time.before_us}, {"after_us", time.after_us}};
}

}  // namespace

namespace {

PlanDiff diff_documents(const Json& before, const Json& after) {
  const auto words = [](const Json& plan) {
    return fmt::format("{} ({})", plan["name"].get<std::string>(), plan["hash"].get<std::string>());
  };
  PlanDiff diff{.before = words(before), .after = words(after)};
  const auto head = [](const Json& plan) {
    Properties properties;
    properties.add("name", plan["name"]);
    for (const auto& [what, is] : plan["facts"].items()) properties.add(what, is);
    if (plan.contains("kept")) properties.add("kept", plan["kept"]);
    return properties;
  };
  diff.plan = Properties::changes(head(before), head(after));
  PlanComparison(before, after, diff);
  diff.totals = totals_of(before, after);
  diff.about = about_changes(before, after);
  compare_times(before, after, diff);
  return diff;
}

}  // namespace

PlanDiff diff_plans(const DumpText& before, const DumpText& after) {
  return diff_documents(read_dump(before), read_dump(after));
}

PlanDiff diff_plans(const Plan& before, const Plan& after) {
  const auto [earlier, later] = documents_to_compare(before, after);
  return diff_documents(earlier, later);
}

std::string to_json(const PlanDiff& diff) {
  Json times = Json::array();
  for (const TimeChange& time : diff.times) times.push_back(json_of(time));
  const Json json = {{"before", diff.before},
                     {"after", diff.after},
                     {"equal", diff.equal()},
                     {"plan", json_of(diff.plan)},
                     {"totals", json_of(diff.totals)},
                     {"about", json_of(diff.about)},
                     {"buffers", json_of(diff.buffers)},
                     {"nodes", json_of(diff.nodes)},
                     {"edges", json_of(diff.edges)},
                     {"step", diff.step ? json_of(*diff.step) : Json(nullptr)},
                     {"times", std::move(times)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace nodewright
