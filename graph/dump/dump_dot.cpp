// to_dot: a plan as a drawing.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/dump/graph_dump.h"
#include "runtime/matmul_plan.h"

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
  if (node.kind == NodeKind::library && !node.library->what.empty())
    return node.name + "\n" + node.library->what.substr(0, node.library->what.find(';'));
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

// The nodes and edges of a plan, each line after `indent`. Node 3 is n3; node 1 of its body 0 is n3_0_1.
class DotWriter {
 public:
  DotWriter(std::string& out, const Plan& plan, std::string prefix, std::string indent)
      : out_(out), plan_(plan), prefix_(std::move(prefix)), indent_(std::move(indent)) {}

  void write() {
    std::vector<std::string_view> layers;  // in order of appearance; a layer may come back later
    for (const PlanNode& node : plan_.nodes) {
      if (node.layer().empty()) write_node(node, indent_);
      if (!node.layer().empty() && std::find(layers.begin(), layers.end(), node.layer()) == layers.end())
        layers.push_back(node.layer());
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      open_cluster(fmt::format("{}{}", prefix_, i), layers[i]);
      for (const PlanNode& node : plan_.nodes)
        if (node.layer() == layers[i]) write_node(node, indent_ + "  ");
      line("}");
    }
    for (const PlanNode& node : plan_.nodes)
      for (size_t i = 0; i < node.bodies.size(); ++i) write_body(node, i);
    for (const Edge& edge : plan_.edges)
      line(fmt::format("{} -> {} [style={}, label={}];", id_of(edge.from), id_of(edge.to),
                       edge.type == EdgeType::full ? "solid" : "dashed",
                       escaped_lines(dot_string(label_of(plan_, edge)))));
  }

 private:
  std::string id_of(uint32_t node) const { return fmt::format("n{}{}", prefix_, node); }
  void line(std::string_view text) { out_.append(indent_).append(text).append("\n"); }

  void open_cluster(const std::string& id, std::string_view label) {
    line(fmt::format("subgraph cluster_{} {{", id));
    line(fmt::format("  label={};", dot_string(label)));
  }

  void write_node(const PlanNode& node, const std::string& indent) {
    out_ += fmt::format("{}{} [label={}];\n", indent, id_of(node.id), escaped_lines(dot_string(label_of(node))));
  }

  // A dotted line leads from the node to what it holds.
  void write_body(const PlanNode& node, size_t index) {
    const Plan& body = *node.bodies[index];
    const std::string inside = fmt::format("{}{}_{}_", prefix_, node.id, index);
    open_cluster(inside + "body", body.name);
    DotWriter(out_, body, inside, indent_ + "  ").write();
    line("}");
    if (!body.nodes.empty()) line(fmt::format("{} -> n{}0 [style=dotted];", id_of(node.id), inside));
  }

  std::string& out_;
  const Plan& plan_;
  std::string prefix_, indent_;
};

}  // namespace

std::string to_dot(const Plan& plan) {
  std::string out = fmt::format("digraph {} {{\n  node [shape=box];\n", dot_string(plan.name));
  DotWriter(out, plan, "", "  ").write();
  return out + "}\n";
}

}  // namespace nodewright
