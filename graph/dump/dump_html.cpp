// to_html, of one plan and of two: the template graph/page/page.html with its styles, its scripts and the plans put in
// place of the marks.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "graph/dump/dump_reader.h"
#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_diff.h"
#include "graph/dump/plan_json.h"
#include "graph/page/page_files.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kScripts[] = {"plan.js", "page.js", "panel.js", "views.js", "start.js"};

std::string_view page_file(std::string_view name) {
  for (const EmbeddedSource& file : page_files())
    if (file.path.substr(file.path.rfind('/') + 1) == name) return file.text;
  throw Error({.doing = "make page", .object = std::string(name), .detail = "the library does not carry this file"});
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

// What the page is made from: {"plan": a dump, "before": a dump or null, "diff": to_json of a PlanDiff or null}.
std::string page_of(const Json& data) {
  const auto text_for = [&](std::string_view mark) -> std::string {
    if (mark == "title") return inside_element(data["plan"]["name"].get<std::string>());
    if (mark == "page.css") return std::string(page_file(mark));
    if (mark == "data") return inside_script(print(data, -1));
    std::string scripts;
    for (const std::string_view file : kScripts) scripts += page_file(file);
    return scripts;
  };
  std::string_view left = page_file("page.html");
  std::string page;
  for (size_t mark; (mark = left.find("{{")) != std::string_view::npos;) {
    const size_t end = left.find("}}", mark);
    page += left.substr(0, mark);
    page += text_for(left.substr(mark + 2, end - mark - 2));
    left.remove_prefix(end + 2);
  }
  return page += left;
}

}  // namespace

std::string to_html(const Plan& plan, const PlanTimings* timings, const PlanFacts& about) {
  return page_of({{"plan", document_of(plan, timings, about)}, {"before", nullptr}, {"diff", nullptr}});
}

std::string to_html(const DumpText& dump) {
  return page_of({{"plan", read_dump(dump)}, {"before", nullptr}, {"diff", nullptr}});
}

std::string to_html(const DumpText& before, const DumpText& after) {
  return page_of({{"plan", read_dump(after)},
                  {"before", read_dump(before)},
                  {"diff", Json::parse(to_json(diff_plans(before, after)))}});
}

}  // namespace nodewright
