#include "graph/timing/plan_timings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "graph/edges/plan_hash.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

uint64_t bytes_of(const PlanNode& node) { return node.traffic.bytes_read + node.traffic.bytes_written; }

Json share_of_peak(double bytes_per_s, double peak) { return peak > 0 ? Json(bytes_per_s / peak) : Json(nullptr); }

[[noreturn]] void refuse(const std::string& source, std::string detail) {
  throw Error({.doing = "read timings",
               .object = source,
               .detail = std::move(detail),
               .advice = "time this plan again and pass the file that is written then"});
}

// The value under `key`, which must be there and a number.
double number(const Json& object, const char* key, const std::string& where, const std::string& source) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) refuse(source, fmt::format("{} has no number \"{}\"", where, key));
  return found->get<double>();
}

uint32_t node_id(const Json& object, size_t index, const std::string& source) {
  const auto found = object.find("node");
  if (found == object.end() || !found->is_number_unsigned() || found->get<uint64_t>() > UINT32_MAX)
    refuse(source, fmt::format("entry {} of \"nodes\" has no node id", index));
  return found->get<uint32_t>();
}

// Where the nodes of another plan first are others than this one's; empty where their names agree.
std::string first_difference(const Json& all, const Plan& plan) {
  const auto nodes = all.find("nodes");
  if (nodes == all.end() || !nodes->is_array()) return "";
  for (const Json& entry : *nodes) {
    if (!entry.is_object() || !entry.contains("node") || !entry.contains("name")) return "";
    const Json &id = entry["node"], &name = entry["name"];
    if (!id.is_number_unsigned() || !name.is_string()) return "";
    const auto index = id.get<uint64_t>();
    if (index >= plan.nodes.size())
      return fmt::format("it times node {}, and plan '{}' has {} nodes", index, plan.name, plan.nodes.size());
    if (name.get_ref<const std::string&>() != plan.nodes[index].name)
      return fmt::format("node {} is '{}' there and '{}' in plan '{}'", index, name.get_ref<const std::string&>(),
                         plan.nodes[index].name, plan.name);
  }
  return "";
}

// The hash says that they are this plan's, and a name that they are of this node.
void check_name(const Json& entry, const Plan& plan, uint32_t id, const std::string& source) {
  const auto name = entry.find("name");
  if (name == entry.end() || !name->is_string())
    refuse(source, fmt::format("the entry of node {} has no \"name\"", id));
  if (id >= plan.nodes.size())
    refuse(source, fmt::format("it times node {}, and plan '{}' has {} nodes", id, plan.name, plan.nodes.size()));
  if (name->get_ref<const std::string&>() != plan.nodes[id].name)
    refuse(source, fmt::format("node {} is '{}' there and '{}' in plan '{}'", id, name->get_ref<const std::string&>(),
                               plan.nodes[id].name, plan.name));
}

std::vector<NodeTiming> parse_nodes(const Json& object, const std::string& source, const Plan& plan);

NodeTiming parse_node(const Json& entry, size_t index, const std::string& source, const Plan& plan) {
  const std::string where = fmt::format("entry {} of \"nodes\"", index);
  if (!entry.is_object()) refuse(source, where + " is not an object");
  NodeTiming timing{.node = node_id(entry, index, source)};
  check_name(entry, plan, timing.node, source);
  timing.time_us = number(entry, "time_us", where, source);
  timing.span_us = number(entry, "span_us", where, source);
  timing.overlap_us = number(entry, "overlap_us", where, source);
  timing.start_us = number(entry, "start_us", where, source);
  timing.end_us = number(entry, "end_us", where, source);
  timing.waited_us = number(entry, "waited_us", where, source);
  const auto bracketed = entry.find("bracketed");
  if (bracketed == entry.end() || !bracketed->is_boolean()) refuse(source, where + " does not say if it is bracketed");
  timing.bracketed = bracketed->get<bool>();
  const auto bodies = entry.find("bodies");
  if (bodies == entry.end()) return timing;
  const PlanNode& node = plan.nodes[timing.node];
  if (!bodies->is_array() || bodies->size() != node.bodies.size())
    refuse(source, fmt::format("{} does not time the {} plans inside node '{}'", where, node.bodies.size(), node.name));
  for (size_t i = 0; i < bodies->size(); ++i)
    timing.bodies.push_back(parse_nodes((*bodies)[i], source, *node.bodies[i]));
  return timing;
}

std::vector<NodeTiming> parse_nodes(const Json& object, const std::string& source, const Plan& plan) {
  const auto nodes = object.find("nodes");
  if (nodes == object.end() || !nodes->is_array()) refuse(source, "it has no list \"nodes\"");
  std::vector<NodeTiming> timings;
  for (size_t i = 0; i < nodes->size(); ++i) timings.push_back(parse_node((*nodes)[i], i, source, plan));
  return timings;
}

void check_time(const std::string& source, const std::string& of, std::string_view what, double value,
                bool may_be_negative) {
  if (!std::isfinite(value) || (value < 0 && !may_be_negative))
    refuse(source, fmt::format("{} of {} is {}", what, of, value));
}

void check_nodes(const std::vector<NodeTiming>& nodes, const Plan& plan, const std::string& source) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeTiming& timing = nodes[i];
    if (timing.node >= plan.nodes.size())
      refuse(source,
             fmt::format("they time node {}, and plan '{}' has {} nodes", timing.node, plan.name, plan.nodes.size()));
    const PlanNode& node = plan.nodes[timing.node];
    const std::string of = fmt::format("node '{}'", node.name);
    if (i > 0 && timing.node <= nodes[i - 1].node)
      refuse(source, fmt::format("{} comes after node '{}', and ids ascend", of, plan.nodes[nodes[i - 1].node].name));
    check_time(source, of, "time_us", timing.time_us, false);
    check_time(source, of, "span_us", timing.span_us, false);
    check_time(source, of, "overlap_us", timing.overlap_us, false);
    check_time(source, of, "start_us", timing.start_us, true);
    check_time(source, of, "end_us", timing.end_us, true);
    check_time(source, of, "waited_us", timing.waited_us, true);
    if (!timing.bodies.empty() && timing.bodies.size() != node.bodies.size())
      refuse(source,
             fmt::format("{} plans inside {} are timed, and it has {}", timing.bodies.size(), of, node.bodies.size()));
    for (size_t body = 0; body < timing.bodies.size(); ++body)
      check_nodes(timing.bodies[body], *node.bodies[body], source);
  }
}

void check(const PlanTimings& timings, const Plan& plan, const std::string& source) {
  if (timings.plan != plan.name)
    refuse(source, fmt::format("they are of plan '{}', not of '{}'", timings.plan, plan.name));
  check_time(source, "the plan", "step_us", timings.step_us, false);
  check_time(source, "the plan", "plain_step_us", timings.plain_step_us, false);
  check_time(source, "the plan", "peak_bytes_per_s", timings.peak_bytes_per_s, false);
  check_time(source, "the plan", "bracket_us", timings.bracket_us, false);
  check_time(source, "the plan", "clock_step_us", timings.clock_step_us, false);
  if (timings.samples < 1) refuse(source, fmt::format("they are of {} samples", timings.samples));
  check_nodes(timings.nodes, plan, source);
}

Json json_of(const std::vector<NodeTiming>& timings, const Plan& plan, double peak) {
  Json nodes = Json::array();
  for (const NodeTiming& timing : timings) {
    const PlanNode& node = plan.nodes[timing.node];
    const double rate = bytes_per_s(node, timing);
    Json& json = nodes.emplace_back(Json{{"node", timing.node},
                                         {"name", node.name},
                                         {"layer", node.layer()},
                                         {"kernel", node.kernel_name()},
                                         {"time_us", timing.time_us},
                                         {"span_us", timing.span_us},
                                         {"overlap_us", timing.overlap_us},
                                         {"start_us", timing.start_us},
                                         {"end_us", timing.end_us},
                                         {"waited_us", timing.waited_us},
                                         {"bracketed", timing.bracketed},
                                         {"bytes", bytes_of(node)},
                                         {"bytes_per_s", rate},
                                         {"share_of_peak", share_of_peak(rate, peak)}});
    for (size_t i = 0; i < timing.bodies.size(); ++i)
      json["bodies"].push_back({{"nodes", json_of(timing.bodies[i], *node.bodies[i], peak)}});
  }
  return nodes;
}

}  // namespace

double bytes_per_s(const PlanNode& node, const NodeTiming& timing) {
  return timing.time_us > 0 ? static_cast<double>(bytes_of(node)) / timing.time_us * 1e6 : 0;
}

std::vector<LayerTiming> layer_timings(const Plan& plan, const PlanTimings& timings) {
  std::vector<LayerTiming> layers;
  for (const NodeTiming& timing : timings.nodes) {
    const PlanNode& node = plan.nodes.at(timing.node);
    auto layer = std::find_if(layers.begin(), layers.end(),
                              [&](const LayerTiming& candidate) { return candidate.layer == node.layer(); });
    if (layer == layers.end()) layer = layers.insert(layers.end(), {.layer = std::string(node.layer())});
    ++layer->nodes;
    layer->bytes += bytes_of(node);
    layer->time_us += timing.time_us;
  }
  return layers;
}

CriticalPath critical_path(const Plan& plan, const PlanTimings& timings) {
  std::vector<const NodeTiming*> of(plan.nodes.size(), nullptr);
  const NodeTiming* last = nullptr;
  for (const NodeTiming& timing : timings.nodes) {
    of.at(timing.node) = &timing;
    if (last == nullptr || timing.end_us > last->end_us) last = &timing;
  }
  std::vector<std::vector<uint32_t>> before(plan.nodes.size());
  for (const Edge& edge : plan.edges) before[edge.to].push_back(edge.from);
  CriticalPath path;
  while (last != nullptr) {
    path.nodes.push_back(last->node);
    path.time_us += last->time_us;
    const NodeTiming* latest = nullptr;
    for (const uint32_t earlier : before[last->node])
      if (of[earlier] != nullptr && (latest == nullptr || of[earlier]->end_us > latest->end_us)) latest = of[earlier];
    last = latest;
  }
  std::reverse(path.nodes.begin(), path.nodes.end());
  return path;
}

std::string to_json(const PlanTimings& timings, const Plan& plan) {
  check_timings(timings, plan);
  Json layers = Json::array();
  for (const LayerTiming& layer : layer_timings(plan, timings))
    layers.push_back({{"layer", layer.layer},
                      {"nodes", layer.nodes},
                      {"time_us", layer.time_us},
                      {"bytes", layer.bytes},
                      {"bytes_per_s", layer.bytes_per_s()},
                      {"share_of_peak", share_of_peak(layer.bytes_per_s(), timings.peak_bytes_per_s)}});
  const CriticalPath path = critical_path(plan, timings);
  const Json all = {{"plan", timings.plan},
                    {"plan_hash", plan_hash(plan)},
                    {"samples", timings.samples},
                    {"step_us", timings.step_us},
                    {"plain_step_us", timings.plain_step_us},
                    {"peak_bytes_per_s", timings.peak_bytes_per_s},
                    {"bracket_us", timings.bracket_us},
                    {"clock_step_us", timings.clock_step_us},
                    {"critical_path_us", path.time_us},
                    {"critical_path", path.nodes},
                    {"nodes", json_of(timings.nodes, plan, timings.peak_bytes_per_s)},
                    {"layers", std::move(layers)}};
  return all.dump(2) + "\n";
}

PlanTimings parse_timings(std::string_view json, const std::string& source, const Plan& plan) {
  const Json all = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) refuse(source, "it is not a JSON object");
  const auto name = all.find("plan");
  if (name == all.end() || !name->is_string()) refuse(source, "it does not say which \"plan\" it is of");
  PlanTimings timings{.plan = name->get<std::string>()};
  const auto hash = all.find("plan_hash");
  if (hash == all.end() || !hash->is_string()) refuse(source, "it does not say the \"plan_hash\" of what was timed");
  const std::string timed_hash = hash->get<std::string>(), own_hash = plan_hash(plan);
  if (timings.plan != plan.name)
    refuse(source,
           fmt::format("they are of plan '{}' ({}), not of '{}' ({})", timings.plan, timed_hash, plan.name, own_hash));
  if (timed_hash != own_hash) {
    const std::string difference = first_difference(all, plan);
    refuse(source, fmt::format("they are of plan '{}' with hash {}, and this '{}' has hash {}: {}", timings.plan,
                               timed_hash, plan.name, own_hash,
                               difference.empty() ? "kernels, their launches, the bytes they move or edges differ"
                                                  : difference));
  }
  timings.step_us = number(all, "step_us", "the file", source);
  timings.plain_step_us = number(all, "plain_step_us", "the file", source);
  timings.peak_bytes_per_s = number(all, "peak_bytes_per_s", "the file", source);
  timings.bracket_us = number(all, "bracket_us", "the file", source);
  timings.clock_step_us = number(all, "clock_step_us", "the file", source);
  const double samples = number(all, "samples", "the file", source);
  if (!(samples >= 1 && samples <= 1e9)) refuse(source, fmt::format("they are of {} samples", samples));
  timings.samples = static_cast<int>(samples);
  timings.nodes = parse_nodes(all, source, plan);
  check(timings, plan, source);
  return timings;
}

void check_timings(const PlanTimings& timings, const Plan& plan) { check(timings, plan, timings.plan); }

}  // namespace nodewright
