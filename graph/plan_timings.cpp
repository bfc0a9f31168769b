#include "graph/plan_timings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "graph/plan_hash.h"

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

// Plans of two models may share a name and a size: the names of the nodes tell them apart.
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
  return timing;
}

void check(const PlanTimings& timings, const Plan& plan, const std::string& source) {
  if (timings.plan != plan.name)
    refuse(source, fmt::format("they are of plan '{}', not of '{}'", timings.plan, plan.name));
  const auto check_time = [&](const std::string& of, std::string_view what, double value, bool may_be_negative) {
    if (!std::isfinite(value) || (value < 0 && !may_be_negative))
      refuse(source, fmt::format("{} of {} is {}", what, of, value));
  };
  check_time("the plan", "step_us", timings.step_us, false);
  check_time("the plan", "plain_step_us", timings.plain_step_us, false);
  check_time("the plan", "peak_bytes_per_s", timings.peak_bytes_per_s, false);
  check_time("the plan", "bracket_us", timings.bracket_us, false);
  check_time("the plan", "clock_step_us", timings.clock_step_us, false);
  if (timings.samples < 1) refuse(source, fmt::format("they are of {} samples", timings.samples));
  for (size_t i = 0; i < timings.nodes.size(); ++i) {
    const NodeTiming& timing = timings.nodes[i];
    if (timing.node >= plan.nodes.size())
      refuse(source,
             fmt::format("they time node {}, and plan '{}' has {} nodes", timing.node, plan.name, plan.nodes.size()));
    const std::string of = fmt::format("node '{}'", plan.nodes[timing.node].name);
    if (i > 0 && timing.node <= timings.nodes[i - 1].node)
      refuse(source,
             fmt::format("{} comes after node '{}', and ids ascend", of, plan.nodes[timings.nodes[i - 1].node].name));
    check_time(of, "time_us", timing.time_us, false);
    check_time(of, "span_us", timing.span_us, false);
    check_time(of, "overlap_us", timing.overlap_us, false);
    check_time(of, "start_us", timing.start_us, true);
    check_time(of, "end_us", timing.end_us, true);
    check_time(of, "waited_us", timing.waited_us, true);
  }
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

std::string to_json(const PlanTimings& timings, const Plan& plan) {
  check_timings(timings, plan);
  Json nodes = Json::array(), layers = Json::array();
  for (const NodeTiming& timing : timings.nodes) {
    const PlanNode& node = plan.nodes[timing.node];
    const double rate = bytes_per_s(node, timing);
    nodes.push_back({{"node", timing.node},
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
                     {"share_of_peak", share_of_peak(rate, timings.peak_bytes_per_s)}});
  }
  for (const LayerTiming& layer : layer_timings(plan, timings))
    layers.push_back({{"layer", layer.layer},
                      {"nodes", layer.nodes},
                      {"time_us", layer.time_us},
                      {"bytes", layer.bytes},
                      {"bytes_per_s", layer.bytes_per_s()},
                      {"share_of_peak", share_of_peak(layer.bytes_per_s(), timings.peak_bytes_per_s)}});
  const Json all = {{"plan", timings.plan},
                    {"plan_hash", plan_hash(plan)},
                    {"samples", timings.samples},
                    {"step_us", timings.step_us},
                    {"plain_step_us", timings.plain_step_us},
                    {"peak_bytes_per_s", timings.peak_bytes_per_s},
                    {"bracket_us", timings.bracket_us},
                    {"clock_step_us", timings.clock_step_us},
                    {"nodes", std::move(nodes)},
                    {"layers", std::move(layers)}};
  return all.dump(2) + "\n";
}

PlanTimings parse_timings(std::string_view json, const std::string& source, const Plan& plan) {
  const Json all = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) refuse(source, "it is not a JSON object");
  const auto name = all.find("plan");
  if (name == all.end() || !name->is_string()) refuse(source, "it does not say which \"plan\" it is of");
  PlanTimings timings{.plan = name->get<std::string>()};
  if (timings.plan != plan.name)
    refuse(source, fmt::format("they are of plan '{}', not of '{}'", timings.plan, plan.name));
  const auto hash = all.find("plan_hash");
  if (hash == all.end() || !hash->is_string()) refuse(source, "it does not say the \"plan_hash\" of what was timed");
  timings.step_us = number(all, "step_us", "the file", source);
  timings.plain_step_us = number(all, "plain_step_us", "the file", source);
  timings.peak_bytes_per_s = number(all, "peak_bytes_per_s", "the file", source);
  timings.bracket_us = number(all, "bracket_us", "the file", source);
  timings.clock_step_us = number(all, "clock_step_us", "the file", source);
  const double samples = number(all, "samples", "the file", source);
  if (!(samples >= 1 && samples <= 1e9)) refuse(source, fmt::format("they are of {} samples", samples));
  timings.samples = static_cast<int>(samples);
  const auto nodes = all.find("nodes");
  if (nodes == all.end() || !nodes->is_array()) refuse(source, "it has no list \"nodes\"");
  for (size_t i = 0; i < nodes->size(); ++i) timings.nodes.push_back(parse_node((*nodes)[i], i, source, plan));
  check(timings, plan, source);
  if (*hash != plan_hash(plan))
    refuse(source, fmt::format("they are of another plan named '{}': its kernels, their launches, the bytes they move "
                               "or its edges differ",
                               plan.name));
  return timings;
}

void check_timings(const PlanTimings& timings, const Plan& plan) { check(timings, plan, timings.plan); }

}  // namespace nodewright
