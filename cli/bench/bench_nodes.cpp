// nodewright bench nodes: what each node of a step takes, by layer and by node, as tables, JSON and a timeline.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/graph/node_bench.h"
#include "bench/spread.h"
#include "cli/bench/bench.h"
#include "cli/output/output_file.h"
#include "cli/report/bench_record.h"
#include "cli/session.h"
#include "engine/option_range.h"
#include "graph/timing/node_timer.h"
#include "graph/timing/plan_timings.h"

namespace nodewright::cli {
namespace {

struct NodesOptions {
  SessionOptions session;
  int64_t context = 1024, prompt = 0;
  int samples = 30, launches = 10;
  std::filesystem::path timeline, blocks;
  RecordOptions record;
};

// Nodes that do the same in different layers: "l0.qkv" and "l15.qkv" are "*.qkv".
struct FoldedNode {
  std::string name;
  std::vector<const NodeTiming*> timings;
  double median(double NodeTiming::*member) const {
    std::vector<double> values;
    for (const NodeTiming* timing : timings) values.push_back(timing->*member);
    return spread_of(values).median;
  }
  double sum(double NodeTiming::*member) const {
    double total = 0;
    for (const NodeTiming* timing : timings) total += timing->*member;
    return total;
  }
};

std::string folded_name(const PlanNode& node) {
  const std::string_view layer = node.layer();
  return layer.empty() ? node.name : "*" + node.name.substr(layer.size());
}

std::vector<FoldedNode> fold_nodes(const NodeBench& bench) {
  std::vector<FoldedNode> folds;
  std::map<std::string, size_t> index;
  for (const NodeTiming& timing : bench.timings.nodes) {
    const std::string name = folded_name(bench.plan.nodes[timing.node]);
    const auto [at, added] = index.try_emplace(name, folds.size());
    if (added) folds.push_back({.name = name, .timings = {}});
    folds[at->second].timings.push_back(&timing);
  }
  return folds;
}

std::string percent(double share) { return share > 0 ? fmt::format("{:.1f}%", share * 100) : std::string("-"); }

double share_of_peak(const PlanTimings& timings, double bytes_per_s) {
  return timings.peak_bytes_per_s > 0 ? bytes_per_s / timings.peak_bytes_per_s : 0;
}

void print_nodes(const NodeBench& bench) {
  fmt::print("{:<18} {:>5} {:>10} {:>11} {:>9} {:>7} {:>10} {:>10}\n", "node", "nodes", "us", "us in all", "GB/s",
             "share", "span us", "overlap us");
  for (const FoldedNode& fold : fold_nodes(bench)) {
    std::vector<double> rates;
    for (const NodeTiming* timing : fold.timings) rates.push_back(bytes_per_s(bench.plan.nodes[timing->node], *timing));
    const double rate = spread_of(rates).median;
    fmt::print("{:<18} {:>5} {:>10.3f} {:>11.3f} {:>9.1f} {:>7} {:>10.3f} {:>10.3f}\n",
               fold.name + (fold.timings.front()->bracketed ? " (bracketed)" : ""), fold.timings.size(),
               fold.median(&NodeTiming::time_us), fold.sum(&NodeTiming::time_us), rate * 1e-9,
               percent(share_of_peak(bench.timings, rate)), fold.median(&NodeTiming::span_us),
               fold.median(&NodeTiming::overlap_us));
  }
}

// Successive layers of the same nodes stand in one line, with their median.
void print_layers(const NodeBench& bench) {
  std::map<std::string, std::string> nodes_of;
  for (const NodeTiming& timing : bench.timings.nodes) {
    const PlanNode& node = bench.plan.nodes[timing.node];
    nodes_of[std::string(node.layer())] += folded_name(node) + " ";
  }
  const std::vector<LayerTiming> layers = layer_timings(bench.plan, bench.timings);
  fmt::print("{:<18} {:>5} {:>10} {:>11} {:>9} {:>7}\n", "layer", "nodes", "us", "us in all", "GB/s", "share");
  for (size_t first = 0; first < layers.size();) {
    size_t last = first;
    while (last + 1 < layers.size() && nodes_of[layers[last + 1].layer] == nodes_of[layers[first].layer]) ++last;
    std::vector<double> times, rates;
    double sum = 0;
    for (size_t i = first; i <= last; ++i) {
      times.push_back(layers[i].time_us);
      rates.push_back(layers[i].bytes_per_s());
      sum += layers[i].time_us;
    }
    std::string name = layers[first].layer.empty() ? "(outside layers)" : layers[first].layer;
    if (last > first) name += ".." + layers[last].layer;
    const double rate = spread_of(rates).median;
    fmt::print("{:<18} {:>5} {:>10.3f} {:>11.3f} {:>9.1f} {:>7}\n", name, layers[first].nodes, spread_of(times).median,
               sum, rate * 1e-9, percent(share_of_peak(bench.timings, rate)));
    first = last + 1;
  }
}

struct Totals {
  double sum_us = 0;
  CriticalPath path;
};

Totals totals_of(const NodeBench& bench) {
  Totals totals{.path = critical_path(bench.plan, bench.timings)};
  for (const NodeTiming& timing : bench.timings.nodes) totals.sum_us += timing.time_us;
  return totals;
}

void print_totals(const NodeBench& bench, const Totals& totals) {
  const PlanTimings& t = bench.timings;
  fmt::print("sum of node times  {:>10.3f} us, {:.1f}% of the twin's step\n", totals.sum_us,
             totals.sum_us / t.step_us * 100);
  fmt::print("critical path      {:>10.3f} us, {} of {} nodes\n", totals.path.time_us, totals.path.nodes.size(),
             t.nodes.size());
  fmt::print("twin's step        {:>10.3f} us\n", t.step_us);
  fmt::print("plain step         {:>10.3f} us, the twin takes {}\n", t.plain_step_us, twin_words(t));
  fmt::print("read peak {:.1f} GB/s, empty bracket {:.3f} us, clock step {:.3f} us, {} samples\n",
             t.peak_bytes_per_s * 1e-9, t.bracket_us, t.clock_step_us, t.samples);
}

nlohmann::ordered_json record_of(const NodesOptions& options, const Device& device, const NodeBench& bench,
                                 const Totals& totals) {
  nlohmann::ordered_json file = measurement_record(device, options.record, options.session.model);
  file["edges"] = options.session.edges;
  if (options.prompt > 0)
    file["prompt"] = options.prompt;
  else
    file["context"] = options.context;
  file["max_context"] = bench.max_context;
  file["sum_us"] = totals.sum_us;
  file.update(nlohmann::ordered_json::parse(to_json(bench.timings, bench.plan)));
  return file;
}

// Microseconds since the first block of the launch started.
std::string csv_of_blocks(const NodeBench& bench) {
  std::string text = "launch,node,block,sm,start_us,waited_us,end_us\n";
  const auto write = std::back_inserter(text);
  for (size_t launch = 0; launch < bench.blocks.size(); ++launch) {
    const std::vector<BlockSpan>& blocks = bench.blocks[launch];
    const uint64_t first = blocks.empty() ? 0 : std::ranges::min(blocks, {}, &BlockSpan::start).start;
    const auto us = [&](uint64_t ns) { return static_cast<double>(ns - first) * 1e-3; };
    for (const BlockSpan& block : blocks) {
      fmt::format_to(write, "{},{},{},{},{:.3f},", launch, bench.plan.nodes[block.node].name, block.block, block.sm,
                     us(block.start));
      if (block.waited != 0) fmt::format_to(write, "{:.3f}", us(block.waited));
      fmt::format_to(write, ",{:.3f}\n", us(block.end));
    }
  }
  return text;
}

int bench_nodes_command(const NodesOptions& options) {
  Session session(options.session);
  session.check_fits(options.prompt > 0 ? options.prompt : options.context);
  const NodeBench bench = bench_nodes(session.device(), session.stream(), session.kernels(), session.model(),
                                      {.batch = options.session.bucket,
                                       .context = options.context,
                                       .max_context = options.session.max_context,
                                       .prompt = options.prompt,
                                       .policy = edge_policy(options.session.edges),
                                       .numerics = numerics_of(options.session.numerics),
                                       .tuning = session.tuning(),
                                       .samples = options.samples,
                                       .launches_per_sample = options.launches,
                                       .block_launches = options.blocks.empty() ? 0 : options.launches});
  const Totals totals = totals_of(bench);
  print_layers(bench);
  fmt::print("\n");
  print_nodes(bench);
  fmt::print("\n");
  print_totals(bench, totals);
  if (!options.record.out.empty()) write_record(options.record, record_of(options, session.device(), bench, totals));
  const TimedPlan timed[] = {{&bench.plan, &bench.timings}};
  if (!options.timeline.empty()) write_whole_file(options.timeline, to_trace(timed));
  if (!options.blocks.empty()) write_whole_file(options.blocks, csv_of_blocks(bench));
  return 0;
}

}  // namespace

void add_bench_nodes(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<NodesOptions>();
  CLI::App* nodes = bench.add_subcommand("nodes", "Time every node of a step, without a profiler");
  add_session_options(*nodes, options->session);
  refuse_mode(*nodes, "nodes are timed in a graph that is made for it, and there is no other way to run that");
  add_bucket_option(*nodes, options->session);
  nodes->add_option("--context", options->context, "keys a row attends to")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30))
      ->capture_default_str();
  nodes
      ->add_option("--prompt", options->prompt,
                   "tokens of a prompt, whose one step is timed instead of rows that decode")
      ->check(CLI::Range(int64_t{1}, kMostRows))
      ->excludes("--context")
      ->excludes("--bucket");
  nodes->add_option("--samples", options->samples, "of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  nodes->add_option("--launches", options->launches, "launches a sample")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add_record_options(*nodes, options->record, "JSON file of the times");
  nodes->add_option("--timeline", options->timeline, "file for Perfetto (ui.perfetto.dev) or chrome://tracing");
  nodes->add_option("--blocks", options->blocks,
                    "CSV file: when and on which multiprocessor each block ran, of a sample's launches");
  nodes->callback([options, &chosen] { chosen = [options] { return bench_nodes_command(*options); }; });
}

}  // namespace nodewright::cli
