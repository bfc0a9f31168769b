// nodewright bench graph: what building, launching, running and changing graphs costs, beside capture and stream
// launches; tables on standard output, the same figures as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bench/graph/graph_bench.h"
#include "bench/graph/library_bench.h"
#include "bench/graph/model_graph_bench.h"
#include "bench/graph/scale_bench.h"
#include "cli/bench/bench.h"
#include "cli/bench/graph_bench_tables.h"
#include "cli/bench/graph_targets.h"
#include "cli/options/refusals.h"
#include "cli/options/whole_number.h"
#include "cli/output/standard_output.h"
#include "cli/report/bench_record.h"
#include "cli/session.h"
#include "engine/schedule/bucket_set.h"
#include "runtime/device_selection.h"
#include "runtime/memory/host_heap.h"

namespace nodewright::cli {
namespace {

std::vector<std::string> scaled_shapes() {
  std::vector<std::string> names;
  for (const ScaledShape shape : kScaledShapes) names.emplace_back(to_string(shape));
  return names;
}

struct GraphBenchCommand {
  std::string device = "auto";
  std::vector<std::string> shapes{"chain", "fork_join"}, widths{"tiny", "full"}, scale_shapes = scaled_shapes();
  std::vector<int> lengths{1, 10, 100, 300, 1000, 2000};
  GraphBenchOptions bench;
  std::filesystem::path model;
  LibraryBenchOptions library;
  bool products = false, model_only = false, buckets = false, reserve = false, check = false, scale = false;
  int64_t most_rows = 512, context = 1024;
  RecordOptions record;
};

// Two decode slots: one step is prepared on the host while the other runs.
constexpr int kSlots = 2;
constexpr int kBucketSets = 5;
constexpr int kFirstBuildNodes = 1000;

std::vector<GraphCase> cases_of(const GraphBenchCommand& command) {
  std::vector<GraphCase> cases;
  if (command.model_only || command.products) return cases;
  for (const std::string& shape : command.shapes)
    for (const std::string& width : command.widths)
      for (const int nodes : command.lengths)
        cases.push_back({shape == "chain" ? GraphShape::chain : GraphShape::fork_join,
                         width == "tiny" ? KernelWidth::tiny : KernelWidth::full, nodes});
  return cases;
}

// As many graphs as may be needed until the driver's free memory has fallen several times: an H200's driver takes about
// 3 KB a node, more for a graph of one node. The CPU driver's never falls.
int most_kept(const Device& device, int nodes) {
  return device.driver().is_cpu() ? 2 : std::clamp(80000 / nodes, 256, 16000);
}

// What it measured, as it came out.
struct Measured {
  FirstBuild first;
  std::vector<GraphBenchRow> rows;
  std::optional<ModelGraphResult> model;
  std::optional<BucketsResult> buckets;
  std::vector<LibraryBenchLine> products;

  std::vector<GraphBenchLine> lines() const {
    std::vector<GraphBenchLine> lines;
    for (const GraphBenchRow& row : rows) lines.push_back(row.line);
    return lines;
  }
};

Measured measure(Device& device, Stream& stream, KernelCache& kernels, const GraphBenchCommand& command) {
  Measured measured;
  const std::vector<GraphCase> cases = cases_of(command);
  measured.first = first_build(device, stream, kernels, kFirstBuildNodes);
  write_standard_output(describe(measured.first) + "\n");

  std::optional<DecoderModel> model;
  if (!command.model.empty()) model = DecoderModel::load(device, stream, command.model);
  std::optional<BucketBench> buckets;
  if (command.buckets) {
    const BucketSet sizes = BucketSet::up_to(static_cast<int>(command.most_rows));
    buckets.emplace(device, stream, kernels, *model, std::vector<int64_t>(sizes.sizes().begin(), sizes.sizes().end()),
                    kSlots, command.context);
    measured.buckets = buckets->build(command.reserve, kBucketSets);
  }
  if (model) {
    measured.model = bench_model_graph(device, stream, kernels, *model,
                                       {.context = command.context, .repetitions = command.bench.repetitions});
    write_standard_output(describe(*measured.model, folder_name(command.model)) + "\n");
  }
  for (const GraphCase& c : cases) measured.rows.push_back({bench_graph(device, stream, kernels, c, command.bench), 0});

  if (command.products) {
    LibraryBenchOptions library = command.library;
    library.repetitions = command.bench.repetitions;
    measured.products = bench_library(device, stream, kernels, library);
    write_standard_output(library_table(measured.products, command.library) + "\n");
  }

  // Memory last: the many graphs that it takes leave the heap in pieces. None is destroyed before all are measured,
  // since the driver serves a graph from what earlier ones left behind.
  KeptGraphs kept;
  if (buckets) buckets->measure_memory(*measured.buckets, kept);
  for (size_t i = 0; i < cases.size(); ++i)
    measured.rows[i].exec_bytes =
        bytes_per_exec(device, stream, kernels, cases[i], most_kept(device, cases[i].nodes), kept);
  if (measured.buckets) {
    write_standard_output(bucket_heading());
    for (const BucketLine& line : measured.buckets->lines) write_standard_output(describe(line));
    write_standard_output(describe_totals(*measured.buckets) + "\n");
  }
  if (!cases.empty()) {
    const std::string foreign = foreign_table(measured.rows);
    write_standard_output(build_table(measured.rows) + "\n" + run_table(measured.rows) + "\n" +
                          change_table(measured.rows) + "\n" + foreign + (foreign.empty() ? "" : "\n"));
  }
  return measured;
}

nlohmann::ordered_json record_of(const GraphBenchCommand& command, const Device& device, const Measured& measured,
                                 const std::vector<Target>& targets) {
  nlohmann::ordered_json file = measurement_record(device, command.record);
  file["units"] = "us: microseconds of the whole graph (loop: of one round); bytes: of device memory";
  file["repetitions"] = command.bench.repetitions;
  file["nodes_a_sample"] = command.bench.nodes_a_sample;
  file["first_build"] = json_of(measured.first);
  file["cases"] = json_list(measured.rows, [](const GraphBenchRow& row) { return json_of(row); });
  if (measured.model) {
    file["model"] = json_of(*measured.model);
    file["model"]["name"] = folder_name(command.model);
    file["model"]["context"] = command.context;
  }
  if (!measured.products.empty())
    file["products"] = json_list(measured.products, [](const LibraryBenchLine& line) { return json_of(line); });
  if (measured.buckets) file["buckets"] = json_of(*measured.buckets);
  file["targets"] = json_list(targets, [](const Target& target) { return json_of(target); });
  return file;
}

// --scale.
int run_scale(const GraphBenchCommand& command) {
  const OpenedDevice opened = open_device(command.device);
  const ScaledPlans plans(*opened.device);
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  write_standard_output(scale_heading());
  for (const ScaledShape shape : kScaledShapes)
    for (const int nodes : command.lengths) {
      if (std::ranges::find(command.scale_shapes, to_string(shape)) == command.scale_shapes.end()) continue;
      const ScaleLine line = measure_scale(*opened.device, plans, shape, static_cast<size_t>(nodes), {});
      write_standard_output(describe(line));
      lines.push_back({{"shape", to_string(line.shape)},
                       {"nodes", line.nodes},
                       {"edges", line.edges},
                       {"add_s", line.add},
                       {"finish_s", line.finish},
                       {"heap_bytes", line.heap_bytes},
                       {"text_s", line.text},
                       {"json_s", line.json},
                       {"diff_s", line.diff}});
      if (line.instantiate) lines.back()["instantiate_s"] = *line.instantiate;
      if (line.driver) lines.back()["driver_s"] = *line.driver;
    }
  if (command.record.out.empty()) return 0;
  nlohmann::ordered_json file = measurement_record(*opened.device, command.record);
  file["units"] = "s: seconds of the whole plan; of processor time, but instantiate_s and driver_s of wall time";
  file["lines"] = std::move(lines);
  write_record(command.record, file);
  return 0;
}

int run_bench_graph(const GraphBenchCommand& command) {
  if (command.scale) return run_scale(command);
  if ((command.buckets || command.model_only) && command.model.empty())
    refuse_option(command.buckets ? "--buckets" : "--model-only", "there is no --model");
  if (!command.model.empty()) check_model_folder(command.model);
  if (!command.device.starts_with("cpu")) fill_huge_heap();
  const OpenedDevice opened = open_device(command.device);
  Device& device = *opened.device;
  Stream stream(device, "bench");
  KernelCache kernels(device);
  const Measured measured = measure(device, stream, kernels, command);
  const std::vector<Target> targets = graph_targets(measured.lines(), measured.buckets ? &*measured.buckets : nullptr);
  for (const Target& target : targets) write_standard_output(describe(target));
  if (!command.record.out.empty()) write_record(command.record, record_of(command, device, measured, targets));
  const bool all_met = std::all_of(targets.begin(), targets.end(), [](const Target& target) { return target.met(); });
  return command.check && !all_met ? 1 : 0;
}

}  // namespace

void add_bench_graph(CLI::App& bench, Action& chosen) {
  auto command = std::make_shared<GraphBenchCommand>();
  CLI::App* graph = bench.add_subcommand("graph", "Time graphs: build, launch, run and change, beside stream capture");
  graph->add_option("--device", command->device, kDeviceHelp)->capture_default_str();
  graph->add_option("--lengths", command->lengths, "nodes of a graph, one or more")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  graph->add_option("--shapes", command->shapes, "chain, fork_join")
      ->check(CLI::IsMember({"chain", "fork_join"}))
      ->capture_default_str();
  graph->add_option("--widths", command->widths, "tiny: 1 block of 32 threads; full: a block of 256 for every SM")
      ->check(CLI::IsMember({"tiny", "full"}))
      ->capture_default_str();
  graph->add_option("--repetitions", command->bench.repetitions, "of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  graph->add_option("--nodes-a-sample", command->bench.nodes_a_sample, "nodes run between two events")
      ->check(CLI::Range(1, 10000000))
      ->capture_default_str();
  graph->add_option("--model", command->model, "checkpoint folder: its decode plan in all three modes as well");
  graph->add_flag("--model-only", command->model_only, "no chains and forks, the model alone");
  graph->add_flag("--products", command->products, "no chains and forks: a chain of library products in both forms");
  graph->add_option("--product-rows", command->library.rows, "of each product")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  graph->add_option("--product-edge", command->library.edge, "columns and inner size of each product")
      ->check(CLI::Range(16, 1 << 14))
      ->capture_default_str();
  graph->add_option("--product-nodes", command->library.nodes, "products of the chain")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  graph->add_flag("--scale", command->scale,
                  "time and memory of plans as they grow to --lengths nodes, in ten shapes, and nothing else");
  graph
      ->add_option("--scale-shapes", command->scale_shapes,
                   fmt::format("of --scale: {}", fmt::join(scaled_shapes(), ", ")))
      ->check(CLI::IsMember(scaled_shapes()).description(""));  // too long a word for a line
  graph->add_flag("--buckets", command->buckets, "build the model's decode graphs of all buckets, for two slots");
  graph->add_flag("--reserve", command->reserve, "before the buckets, one graph of as many nodes as they have in all");
  graph->add_option("--most-rows", command->most_rows, "of the largest bucket")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  graph->add_option("--context", command->context, "keys a row of the decode plan attends to")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_record_options(*graph, command->record);
  graph->add_flag("--check", command->check, "exit 1 unless every target was measured and met");
  graph->callback([command, &chosen] { chosen = [command] { return run_bench_graph(*command); }; });
}

}  // namespace nodewright::cli
