// to_dot: a plan as a drawing.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "graph/graph_dump.h"

namespace nodewright {
namespace {

// Between double quotes in DOT.
std::string dot_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string label_of(const PlanNode& node) {
  if (node.kind != NodeKind::kernel) return node.name + "\n" + std::string(to_string(node.kind));
  return fmt::format("{}\n{} {}x{}", node.name, node.kernel_name(), node.shape.blocks(), node.shape.threads());
}

std::string label_of(const Plan& plan, const Edge& edge) {
  std::string label;
  for (const Reason& reason : edge.reasons) label += (label.empty() ? "" : "\n") + describe(plan, reason);
  return label;
}

// A newline in a label is written \n.
std::string escaped_lines(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, "\\n");
  return text;
}

}  // namespace

std::string to_dot(const Plan& plan) {
  std::string out = fmt::format("digraph {} {{\n  node [shape=box];\n", dot_string(plan.name));
  const auto write = std::back_inserter(out);
  const auto write_node = [&](const PlanNode& node, std::string_view indent) {
    fmt::format_to(write, "{}n{} [label={}];\n", indent, node.id, escaped_lines(dot_string(label_of(node))));
  };

  std::vector<std::string_view> layers;  // in order of appearance; a layer may come back later
  for (const PlanNode& node : plan.nodes) {
    if (node.layer().empty()) write_node(node, "  ");
    if (!node.layer().empty() && std::find(layers.begin(), layers.end(), node.layer()) == layers.end())
      layers.push_back(node.layer());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    fmt::format_to(write, "  subgraph cluster_{} {{\n    label={};\n", i, dot_string(layers[i]));
    for (const PlanNode& node : plan.nodes)
      if (node.layer() == layers[i]) write_node(node, "    ");
    out += "  }\n";
  }
  for (const Edge& edge : plan.edges)
    fmt::format_to(write, "  n{} -> n{} [style={}, label={}];\n", edge.from, edge.to,
                   edge.type == EdgeType::full ? "solid" : "dashed", escaped_lines(dot_string(label_of(plan, edge))));
  return out + "}\n";
}

}  // namespace nodewright
