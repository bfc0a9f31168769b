#include "cli/bench/graph_bench_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "cli/report/bench_record.h"
#include "engine/byte_size.h"

namespace nodewright::cli {
namespace {

using F = GraphFigure;

std::string case_columns(const GraphCase& c) {
  return fmt::format("{:<9} {:<5} {:>5}", to_string(c.shape), to_string(c.width), c.nodes);
}
const std::string kCaseHeading = fmt::format("{:<9} {:<5} {:>5}", "shape", "width", "nodes");

double per_node(const GraphBenchLine& line, F figure) {
  return line[figure].median / static_cast<double>(line.measured_case.nodes);
}

std::string cell(bool measured, double value, int width, int digits) {
  return measured ? fmt::format(" {:>{}.{}f}", value, width, digits) : fmt::format(" {:>{}}", "-", width);
}

struct Column {
  const char* heading;
  F figure;
  bool of_node;  // divided by the nodes
};

std::string table(const std::string& title, const std::vector<GraphBenchRow>& rows, const std::vector<Column>& columns,
                  bool with_bytes = false) {
  std::string text = title + "\n" + kCaseHeading;
  for (const Column& column : columns) text += fmt::format(" {:>9}", column.heading);
  if (with_bytes) text += fmt::format(" {:>9}", "B/node");
  text += "\n";
  for (const auto& [line, exec_bytes] : rows) {
    text += case_columns(line.measured_case);
    for (const Column& column : columns)
      text += cell(line.has(column.figure), column.of_node ? per_node(line, column.figure) : line[column.figure].median,
                   9, column.of_node ? 3 : 2);
    if (with_bytes) text += cell(exec_bytes > 0, exec_bytes / line.measured_case.nodes, 9, 0);
    text += "\n";
  }
  for (const auto& [line, exec_bytes] : rows)
    if (!line.update_problem.empty() && title.starts_with("change"))
      text += fmt::format("{}: {}\n", case_columns(line.measured_case), line.update_problem);
  return text;
}

double us_of_node(const BucketLine& line) { return line.total_us() / static_cast<double>(line.nodes); }

nlohmann::ordered_json json_of(const BucketLine& line) {
  return {{"rows", line.rows},
          {"slot", line.slot},
          {"nodes", line.nodes},
          {"plan_us", line.plan_us},
          {"add_us", line.add_us},
          {"instantiate_us", line.instantiate_us},
          {"upload_us", line.upload_us},
          {"us_per_node", us_of_node(line)},
          {"longest_us", line.longest_us},
          {"free_memory_fell_bytes", line.free_fell_bytes},
          {"estimated_bytes", line.estimate.bytes},
          {"estimated_ms", line.estimate.ms},
          {"exec_bytes", line.exec_bytes > 0 ? nlohmann::ordered_json(line.exec_bytes) : nullptr}};
}

}  // namespace

std::string build_table(const std::vector<GraphBenchRow>& rows) {
  return table("build: CPU us a node of a repeated build; builder + finish + add = a node added", rows,
               {{"builder", F::builder_launch, true},
                {"finish", F::builder_finish, true},
                {"add", F::driver_add, true},
                {"build", F::build, true},
                {"instant.", F::instantiate, true},
                {"upload", F::upload, true},
                {"capture", F::capture, true},
                {"c.inst.", F::capture_instantiate, true},
                {"c.upload", F::capture_upload, true}},
               true);
}

std::string run_table(const std::vector<GraphBenchRow>& rows) {
  return table(
      "run: GPU us a node, launches back to back, edges full | programmatic (.p); CPU us of one launch, stream idle",
      rows,
      {{"eager", F::gpu_eager_full, true},
       {"captured", F::gpu_captured_full, true},
       {"explicit", F::gpu_explicit_full, true},
       {"eager.p", F::gpu_eager, true},
       {"capt.p", F::gpu_captured, true},
       {"expl.p", F::gpu_explicit, true},
       {"first", F::first_launch, false},
       {"launch", F::launch_explicit, false},
       {"capt.", F::launch_captured, false},
       {"eager", F::submit_eager, false}});
}

std::string change_table(const std::vector<GraphBenchRow>& rows) {
  return table(
      "change: CPU us in all, of one argument of 1 node, 10 % and all, of an update by capture and by plan (and the "
      "driver's own calls for that), of a kernel; GPU us of a WHILE node's round",
      rows,
      {{"patch1", F::patch_one, false},
       {"launch", F::launch_after_one, false},
       {"10%", F::patch_tenth, false},
       {"launch", F::launch_after_tenth, false},
       {"all", F::patch_all, false},
       {"launch", F::launch_after_all, false},
       {"recapture", F::recapture, false},
       {"update", F::update, false},
       {"launch", F::launch_after_update, false},
       {"plan", F::update_plan, false},
       {"driver", F::update_plan_driver, false},
       {"launch", F::launch_after_update_plan, false},
       {"kernel", F::patch_kernel, false},
       {"loop", F::loop_full, false},
       {"loop.p", F::loop, false}});
}

std::string foreign_table(const std::vector<GraphBenchRow>& rows) {
  std::vector<GraphBenchRow> chains;
  std::ranges::copy_if(rows, std::back_inserter(chains),
                       [](const GraphBenchRow& row) { return row.line.has(F::foreign_build); });
  if (chains.empty()) return "";
  return table(
      "foreign kernels (f.) beside ours: CPU us a node of a build; GPU us a node, full edges; CPU us of a patch",
      chains,
      {{"builder", F::builder_launch, true},
       {"f.builder", F::foreign_launch, true},
       {"add", F::driver_add, true},
       {"f.add", F::foreign_add, true},
       {"build", F::build, true},
       {"f.build", F::foreign_build, true},
       {"explicit", F::gpu_explicit_full, true},
       {"f.expl.", F::gpu_foreign_full, true},
       {"patch1", F::patch_one, false},
       {"f.patch1", F::patch_foreign_one, false}});
}

std::string describe(const FirstBuild& first) {
  const double nodes = first.nodes;
  return fmt::format(
      "first build of the process, chain of {} tiny kernels, us a node: builder {:.3f}, finish {:.3f}, add {:.3f}, "
      "instantiate {:.3f}, upload {:.3f}; first launch {:.1f} us\n",
      first.nodes, first.builder_launch_us / nodes, first.builder_finish_us / nodes, first.driver_add_us / nodes,
      first.instantiate_us / nodes, first.upload_us / nodes, first.first_launch_us);
}

std::string describe(const ModelGraphResult& result, const std::string& model) {
  std::string text = fmt::format(
      "decode plan of {}: {} nodes, {} edges ({} programmatic), planned in {:.1f} us ({:.1f} to {:.1f})\n"
      "{:<9} {:>10} {:>12} {:>10} {:>10} {:>12}   us in all; add: cuGraphAddNode or capture\n",
      model, result.nodes, result.edges, result.programmatic_edges, result.plan_us.median, result.plan_us.least,
      result.plan_us.most, "mode", "add", "instantiate", "upload", "launch", "GPU step");
  for (const ModelModeLine& mode : result.modes) {
    const bool graph = mode.mode != RunMode::eager;
    text += fmt::format("{:<9}", to_string(mode.mode)) + cell(graph, mode.record_us.median, 10, 1) +
            cell(graph, mode.instantiate_us.median, 12, 1) + cell(graph, mode.upload_us.median, 10, 1) +
            cell(true, mode.launch_us.median, 10, 2) + cell(true, mode.step_us.median, 12, 2) + "\n";
  }
  return text;
}

std::string bucket_heading() {
  return fmt::format(
      "buckets: a decode graph each, all alive at once; of the builds of each, one a set, that of median time\n{:>5} "
      "{:>4} {:>5} {:>9} {:>8} {:>9} {:>11} {:>8} {:>8} {:>10} "
      "{:>8}\n",
      "rows", "slot", "nodes", "ms", "us/node", "plan us", "add us", "inst. us", "upl. us", "longest ms", "B/node");
}

std::string describe(const BucketLine& line) {
  return fmt::format("{:>5} {:>4} {:>5} {:>9.3f} {:>8.2f} {:>9.1f} {:>11.1f} {:>8.1f} {:>8.1f} {:>10.3f}", line.rows,
                     line.slot, line.nodes, line.total_us() * 1e-3, us_of_node(line), line.plan_us, line.add_us,
                     line.instantiate_us, line.upload_us, line.longest_us * 1e-3) +
         cell(line.exec_bytes > 0, line.exec_bytes / static_cast<double>(line.nodes), 8, 0) + "\n";
}

std::string describe_totals(const BucketsResult& result) {
  double us = 0, longest_us = 0, estimated_ms = 0;
  uint64_t estimated_bytes = 0;
  size_t nodes = 0;
  std::vector<double> of_node;
  for (const BucketLine& line : result.lines) {
    us += line.total_us();
    estimated_ms += line.estimate.ms;
    estimated_bytes += line.estimate.bytes;
    nodes += line.nodes;
    of_node.push_back(us_of_node(line));
    longest_us = std::max(longest_us, line.longest_us / static_cast<double>(line.nodes));
  }
  const Spread spread = spread_of(of_node);
  return fmt::format(
      "kernels: {} for all buckets, {} compiled, {:.1f} ms in all\n"
      "first graph, before all others: {:.3f} ms, {:.2f} us a node\n"
      "one graph of as many nodes as all others, built and destroyed before them: {}\n"
      "{} graphs, {} nodes: {:.1f} ms, {:.2f} us a node (median {:.2f}, {:.2f} to {:.2f}); {} of device memory, "
      "{:.0f} B a node; each launched once with no live row: {:.1f} ms\n"
      "set by set: {:.1f} ms; the longest single build: {:.2f} us a node\n"
      "estimated before they were built, without planning: {:.1f} ms, {}\n",
      result.kernels, result.kernels_compiled, result.kernels_ms, result.first.total_us() * 1e-3,
      us_of_node(result.first), result.reserve_ms > 0 ? fmt::format("{:.1f} ms", result.reserve_ms) : "none",
      result.lines.size(), nodes, us * 1e-3, us / static_cast<double>(nodes), spread.median, spread.least, spread.most,
      byte_size_text(static_cast<double>(result.free_fell_bytes)),
      static_cast<double>(result.free_fell_bytes) / static_cast<double>(nodes), result.launch_all_ms,
      fmt::join(result.set_ms, ", "), longest_us, estimated_ms, byte_size_text(estimated_bytes));
}

nlohmann::ordered_json json_of(const GraphBenchRow& row) {
  const GraphBenchLine& line = row.line;
  nlohmann::ordered_json json = {{"shape", std::string(to_string(line.measured_case.shape))},
                                 {"width", std::string(to_string(line.measured_case.width))},
                                 {"nodes", line.measured_case.nodes},
                                 {"edges", line.edges},
                                 {"programmatic_edges", line.programmatic_edges},
                                 {"core_moves", line.core_moves},
                                 {"exec_bytes", row.exec_bytes > 0 ? nlohmann::ordered_json(row.exec_bytes) : nullptr}};
  if (!line.update_problem.empty()) json["update_problem"] = line.update_problem;
  for (size_t i = 0; i < line.us.size(); ++i)
    if (line.measured[i]) json["us"][std::string(to_string(static_cast<F>(i)))] = spread_json(line.us[i]);
  return json;
}

nlohmann::ordered_json json_of(const FirstBuild& first) {
  return {{"nodes", first.nodes},
          {"builder_launch_us", first.builder_launch_us},
          {"builder_finish_us", first.builder_finish_us},
          {"driver_add_us", first.driver_add_us},
          {"instantiate_us", first.instantiate_us},
          {"upload_us", first.upload_us},
          {"first_launch_us", first.first_launch_us}};
}

nlohmann::ordered_json json_of(const ModelGraphResult& result) {
  nlohmann::ordered_json json = {{"nodes", result.nodes},
                                 {"edges", result.edges},
                                 {"programmatic_edges", result.programmatic_edges},
                                 {"plan_us", spread_json(result.plan_us)}};
  for (const ModelModeLine& mode : result.modes) {
    nlohmann::ordered_json line = {{"launch_us", spread_json(mode.launch_us)}, {"step_us", spread_json(mode.step_us)}};
    if (mode.mode != RunMode::eager) {
      line["add_us"] = spread_json(mode.record_us);
      line["instantiate_us"] = spread_json(mode.instantiate_us);
      line["upload_us"] = spread_json(mode.upload_us);
    }
    json["modes"][std::string(to_string(mode.mode))] = line;
  }
  return json;
}

nlohmann::ordered_json json_of(const BucketsResult& result) {
  nlohmann::ordered_json json = {{"kernels", result.kernels},
                                 {"kernels_compiled", result.kernels_compiled},
                                 {"kernels_ms", result.kernels_ms},
                                 {"free_memory_fell_bytes", result.free_fell_bytes},
                                 {"launch_all_ms", result.launch_all_ms},
                                 {"reserve_ms", result.reserve_ms},
                                 {"set_ms", result.set_ms},
                                 {"first", json_of(result.first)},
                                 {"graphs", nlohmann::ordered_json::array()}};
  for (const BucketLine& line : result.lines) json["graphs"].push_back(json_of(line));
  return json;
}

std::string library_table(const std::vector<LibraryBenchLine>& lines, const LibraryBenchOptions& options) {
  std::string text = fmt::format(
      "products: {} of {}x{}x{} bf16 in a chain, us\n{:<12} {:>8} {:>10} {:>12} {:>10} {:>10} {:>12}\n", options.nodes,
      options.rows, options.edge, options.edge, "form", "in it", "add", "instantiate", "launch", "gpu", "gpu a node");
  for (const LibraryBenchLine& line : lines)
    text += fmt::format("{:<12} {:>8} {:>10.1f} {:>12.1f} {:>10.2f} {:>10.1f} {:>12.3f}\n",
                        line.form == LibraryForm::kernel ? "kernel" : "child_graph", line.in_form, line.add.median,
                        line.instantiate.median, line.launch.median, line.gpu.median, line.gpu.median / options.nodes);
  return text;
}

nlohmann::ordered_json json_of(const LibraryBenchLine& line) {
  return {{"form", to_string(line.form)},          {"in_form", line.in_form},
          {"add_us", spread_json(line.add)},       {"instantiate_us", spread_json(line.instantiate)},
          {"launch_us", spread_json(line.launch)}, {"gpu_us", spread_json(line.gpu)}};
}

}  // namespace nodewright::cli
