// to_json: a plan for programs.
#include <nlohmann/json.hpp>

#include "graph/graph_dump.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Plan& plan, const PlanNode& node) {
  Json uses = Json::array();
  for (const Use& use : node.uses)
    uses.push_back({{"field", use.field},
                    {"buffer", plan.buffers[use.buffer].range.name},
                    {"offset", use.offset},
                    {"bytes", use.bytes},
                    {"access", to_string(use.access)}});
  const LaunchShape& shape = node.shape;
  return {{"id", node.id},
          {"name", node.name},
          {"kind", to_string(node.kind)},
          {"kernel", node.kernel_name()},
          {"layer", node.layer()},
          {"grid", {shape.grid[0], shape.grid[1], shape.grid[2]}},
          {"block", {shape.block[0], shape.block[1], shape.block[2]}},
          {"shared_bytes", shape.shared_bytes},
          {"bytes_read", node.traffic.bytes_read},
          {"bytes_written", node.traffic.bytes_written},
          {"uses", std::move(uses)}};
}

Json json_of(const Plan& plan, const Edge& edge) {
  Json reasons = Json::array();
  for (const Reason& reason : edge.reasons) reasons.push_back(describe(plan, reason));
  return {{"from", edge.from}, {"to", edge.to}, {"type", to_string(edge.type)}, {"reasons", std::move(reasons)}};
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json buffers = Json::array(), nodes = Json::array(), edges = Json::array();
  for (const Buffer& buffer : plan.buffers)
    buffers.push_back({{"name", buffer.range.name}, {"bytes", buffer.range.bytes}, {"kind", buffer.range.kind}});
  for (const PlanNode& node : plan.nodes) nodes.push_back(json_of(plan, node));
  for (const Edge& edge : plan.edges) edges.push_back(json_of(plan, edge));
  const Json all = {{"name", plan.name},
                    {"bucket", plan.bucket ? Json(*plan.bucket) : Json(nullptr)},
                    {"buffers", std::move(buffers)},
                    {"nodes", std::move(nodes)},
                    {"edges", std::move(edges)}};
  return all.dump(2) + "\n";
}

}  // namespace nodewright
