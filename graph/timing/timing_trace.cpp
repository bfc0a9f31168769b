// A timeline of timings, as Trace Events.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "graph/timing/plan_timings.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

struct Slice {
  std::string name, category;
  double start_us = 0, end_us = 0;
  Json args;
};

// Slices of one track may not overlap: each goes to the first track that is free when it starts.
std::vector<std::vector<Slice>> tracks_of(std::vector<Slice> slices) {
  std::stable_sort(slices.begin(), slices.end(),
                   [](const Slice& a, const Slice& b) { return a.start_us < b.start_us; });
  std::vector<std::vector<Slice>> tracks;
  for (Slice& slice : slices) {
    auto track = std::find_if(tracks.begin(), tracks.end(), [&](const std::vector<Slice>& candidate) {
      return candidate.back().end_us <= slice.start_us;
    });
    if (track == tracks.end()) track = tracks.insert(tracks.end(), std::vector<Slice>());
    track->push_back(std::move(slice));
  }
  return tracks;
}

Json share_of(double bytes_per_s, double peak) { return peak > 0 ? Json(bytes_per_s / peak) : Json(nullptr); }

std::vector<Slice> node_slices(const Plan& plan, const PlanTimings& timings) {
  std::vector<Slice> slices;
  for (const NodeTiming& timing : timings.nodes) {
    const PlanNode& node = plan.nodes[timing.node];
    const double rate = bytes_per_s(node, timing);
    Json args = {{"kernel", node.kernel_name()}, {"bytes", node.traffic.bytes_read + node.traffic.bytes_written},
                 {"GB/s", rate * 1e-9},          {"share_of_peak", share_of(rate, timings.peak_bytes_per_s)},
                 {"time_us", timing.time_us},    {"overlap_us", timing.overlap_us},
                 {"bracketed", timing.bracketed}};
    if (timing.waited_us > 0) args["waited_us"] = timing.waited_us;
    slices.push_back({node.name, std::string(to_string(node.kind)), timing.start_us, timing.end_us, std::move(args)});
  }
  return slices;
}

// From the first start to the last end of each layer's nodes.
std::vector<Slice> layer_slices(const Plan& plan, const PlanTimings& timings) {
  std::vector<Slice> slices;
  for (const LayerTiming& layer : layer_timings(plan, timings)) {
    if (layer.layer.empty()) continue;
    Slice slice{.name = layer.layer, .category = "layer", .start_us = 1e300, .end_us = -1e300, .args = {}};
    for (const NodeTiming& timing : timings.nodes) {
      if (plan.nodes[timing.node].layer() != layer.layer) continue;
      slice.start_us = std::min(slice.start_us, timing.start_us);
      slice.end_us = std::max(slice.end_us, timing.end_us);
    }
    slice.args = {{"nodes", layer.nodes},
                  {"bytes", layer.bytes},
                  {"GB/s", layer.bytes_per_s() * 1e-9},
                  {"share_of_peak", share_of(layer.bytes_per_s(), timings.peak_bytes_per_s)},
                  {"time_us", layer.time_us}};
    slices.push_back(std::move(slice));
  }
  return slices;
}

Json metadata(const char* what, int process, int track, Json args) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", track}, {"args", std::move(args)}};
}

// Adds the tracks of one kind from number `track` on; returns the first free number.
int add_tracks(Json& events, int process, int track, const std::string& name, std::vector<Slice> slices) {
  int nth = 0;
  for (const std::vector<Slice>& of_track : tracks_of(std::move(slices))) {
    ++nth;
    const std::string text = nth == 1 ? name : name + " " + std::to_string(nth);
    events.push_back(metadata("thread_name", process, track, {{"name", text}}));
    events.push_back(metadata("thread_sort_index", process, track, {{"sort_index", track}}));
    for (const Slice& slice : of_track)
      events.push_back({{"name", slice.name},
                        {"cat", slice.category},
                        {"ph", "X"},
                        {"ts", slice.start_us},
                        {"dur", slice.end_us - slice.start_us},
                        {"pid", process},
                        {"tid", track},
                        {"args", slice.args}});
    ++track;
  }
  return track;
}

}  // namespace

std::string to_trace(std::span<const TimedPlan> plans) {
  Json events = Json::array();
  int process = 0;
  for (const auto& [plan, timings] : plans) {
    check_timings(*timings, *plan);
    ++process;
    events.push_back(metadata("process_name", process, 0, {{"name", plan->name}}));
    const int nodes_from = add_tracks(events, process, 1, "layers", layer_slices(*plan, *timings));
    add_tracks(events, process, nodes_from, "nodes", node_slices(*plan, *timings));
  }
  const Json all = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  return all.dump() + "\n";
}

}  // namespace nodewright
