// to_html: the template graph/page/page.html with its styles, its scripts and the plan put in place of the marks.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "graph/graph_dump.h"
#include "graph/page/page_files.h"
#include "graph/plan_fold.h"
#include "graph/plan_json.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

std::string_view page_file(std::string_view name) {
  for (const EmbeddedSource& file : page_files())
    if (file.path.substr(file.path.rfind('/') + 1) == name) return file.text;
  throw Error({.doing = "make page", .object = std::string(name), .detail = "the library does not carry this file"});
}

// {"runs": [{"first", "count", "times"}], "bodies": {node id: [the same for each plan inside it]}}: from node `first`,
// `times` blocks of `count` nodes that are the same.
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

// These characters stand in JSON's strings only. Escaped there, the text can neither end the script element that holds
// it nor open a comment.
std::string inside_script(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&')
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out;
}

std::string inside_element(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

// The template's text for the mark {{name}}.
std::string fill_mark(std::string_view name, const Plan& plan, const PlanTimings* timings) {
  if (name == "title") return inside_element(plan.name);
  if (name == "page.css") return std::string(page_file(name));
  if (name == "page.js") {
    std::string scripts;
    for (const std::string_view file : {"plan.js", "page.js", "panel.js"}) scripts += page_file(file);
    return scripts;
  }
  const Json data = {{"device", plan.device == nullptr ? Json(nullptr) : Json(describe(*plan.device))},
                     {"plan", json_of(plan)},
                     {"folds", folds_of(plan)},
                     {"timings", timings == nullptr ? Json(nullptr) : Json::parse(to_json(*timings, plan))}};
  return inside_script(print(data, -1));
}

}  // namespace

std::string to_html(const Plan& plan, const PlanTimings* timings) {
  std::string_view left = page_file("page.html");
  std::string page;
  for (size_t mark; (mark = left.find("{{")) != std::string_view::npos;) {
    const size_t end = left.find("}}", mark);
    page += left.substr(0, mark);
    page += fill_mark(left.substr(mark + 2, end - mark - 2), plan, timings);
    left.remove_prefix(end + 2);
  }
  return page += left;
}

}  // namespace nodewright
