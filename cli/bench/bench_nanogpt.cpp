// nodewright bench nanogpt: the tables of "NanoGPT: CUDA Graph Replay", with three runs where the article has two, and
// the same figures as JSON. Exit code 1 when the three did not choose the same tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/bench/bench.h"
#include "cli/report/bench_record.h"
#include "cli/session.h"
#include "examples/nanogpt/nanogpt_bench.h"
#include "runtime/device_selection.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct NanogptOptions {
  std::string device = "auto", edges = "programmatic";
  std::vector<int64_t> lengths = nanogpt_sweep_lengths();
  int samples = 20;
  RecordOptions record;
};

constexpr uint64_t kWeightSeed = 1;             // of tests/golden/nanogpt
constexpr size_t kCaptured = 1, kExplicit = 2;  // in kNanogptModes

std::string tokens_of(const NanogptLine& line) { return token_difference(line).value_or("equal"); }

void print_named(const std::vector<NanogptLine>& lines) {
  fmt::print(
      "## Named configurations\n\n"
      "| Config | Prompt Len | Gen Tokens | Eager tok/s | Captured tok/s | Explicit tok/s | E2E Speedup, captured "
      "| E2E Speedup, explicit | Per-step Speedup, captured | Per-step Speedup, explicit | Tokens |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const NanogptLine& l : lines)
    fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.2f}x | {:.2f}x | {:.2f}x | {:.2f}x | {} |\n",
               l.configuration.name, l.configuration.prompt, l.configuration.generated, l.tokens_per_s(0),
               l.tokens_per_s(kCaptured), l.tokens_per_s(kExplicit), l.end_to_end_speedup(kCaptured),
               l.end_to_end_speedup(kExplicit), l.step_speedup(kCaptured), l.step_speedup(kExplicit), tokens_of(l));
}

void print_sweep(const std::vector<NanogptLine>& lines) {
  fmt::print(
      "\n## Generation length sweep (prompt_len={})\n\n"
      "| Gen Tokens | Eager tok/s | Captured tok/s | Explicit tok/s | E2E Speedup, captured | E2E Speedup, explicit "
      "| Per-step Speedup, captured | Per-step Speedup, explicit | Tokens |\n"
      "|---|---|---|---|---|---|---|---|---|\n",
      kNanogptSweepPrompt);
  for (const NanogptLine& l : lines)
    fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.2f}x | {:.2f}x | {:.2f}x | {:.2f}x | {} |\n",
               l.configuration.generated, l.tokens_per_s(0), l.tokens_per_s(kCaptured), l.tokens_per_s(kExplicit),
               l.end_to_end_speedup(kCaptured), l.end_to_end_speedup(kExplicit), l.step_speedup(kCaptured),
               l.step_speedup(kExplicit), tokens_of(l));
}

// One row a configuration, one column a mode.
void print_times(const char* title, const std::vector<NanogptLine>& lines, Spread NanogptFigures::*figure) {
  fmt::print(
      "\n## {}\n\n| Config | Eager (ms) | Captured (ms) | Explicit (ms) | Speedup, captured | Speedup, explicit |\n"
      "|---|---|---|---|---|---|\n",
      title);
  for (const NanogptLine& l : lines) {
    const auto ms = [&](size_t mode) { return (l.modes[mode].*figure).median; };
    fmt::print("| {} | {:.4f} | {:.4f} | {:.4f} | {:.2f}x | {:.2f}x |\n", l.configuration.name, ms(0), ms(kCaptured),
               ms(kExplicit), ms(0) / ms(kCaptured), ms(0) / ms(kExplicit));
  }
}

void print_build(const std::vector<NanogptLine>& lines) {
  fmt::print("\n## Built once\n\n| Config | Eager (ms) | Captured (ms) | Explicit (ms) |\n|---|---|---|---|\n");
  for (const NanogptLine& l : lines)
    fmt::print("| {} | {:.3f} | {:.3f} | {:.3f} |\n", l.configuration.name, l.modes[0].build_ms.median,
               l.modes[kCaptured].build_ms.median, l.modes[kExplicit].build_ms.median);
}

void print_notes(const Plan& step) {
  const auto kernels = std::count_if(step.nodes.begin(), step.nodes.end(),
                                     [](const PlanNode& node) { return node.kind == NodeKind::kernel; });
  fmt::print(
      "\nMedians. A step is the same plan in every mode: {} kernels and {} copy, the choice of the token among them,\n"
      "and ends when the token is on the host. The article's eager step is launched by Python, which validates,\n"
      "dispatches and allocates per operation, and samples outside the graph: ours is launched from C++ over fixed\n"
      "buffers, so that only the launches themselves are left to save. E2E runs from the prompt, which is launched\n"
      "eagerly in every mode as in the article, to the last token; building the plan and its graph is listed apart.\n",
      kernels, step.nodes.size() - static_cast<size_t>(kernels));
}

nlohmann::ordered_json json_of(const NanogptLine& line) {
  nlohmann::ordered_json json{{"config", line.configuration.name},
                              {"prompt", line.configuration.prompt},
                              {"generated", line.configuration.generated},
                              {"tokens", tokens_of(line)}};
  for (size_t mode = 0; mode < kNanogptModes.size(); ++mode) {
    const NanogptFigures& figures = line.modes[mode];
    json["modes"][std::string(to_string(kNanogptModes[mode]))] = {
        {"step_ms", spread_json(figures.step_ms)},
        {"end_to_end_ms", spread_json(figures.end_to_end_ms)},
        {"tokens_per_s", line.tokens_per_s(mode)},
        {"device_step_ms", spread_json(figures.device_step_ms)},
        {"build_ms", spread_json(figures.build_ms)},
        {"step_speedup", line.step_speedup(mode)},
        {"end_to_end_speedup", line.end_to_end_speedup(mode)}};
  }
  return json;
}

void write_json(const NanogptOptions& options, const Device& device, const NanogptWeights& weights, const Plan& step,
                const std::vector<NanogptLine>& named, const std::vector<NanogptLine>& sweep) {
  const NanogptConfig& c = weights.config();
  nlohmann::ordered_json file = measurement_record(device, options.record);
  file["model"] = {{"layers", c.layers},      {"heads", c.heads}, {"n_embd", c.embedding},
                   {"block_size", c.context}, {"vocab", c.vocab}, {"parameters", weights.parameters()}};
  file["edges"] = options.edges;
  file["samples"] = options.samples;
  file["nodes"] = step.nodes.size();
  file["named"] = json_list(named, json_of);
  file["sweep"] = json_list(sweep, json_of);
  write_record(options.record, file);
}

int bench_nanogpt_command(const NanogptOptions& options) {
  const OpenedDevice opened = open_device(options.device);
  Device& device = *opened.device;
  const Stream stream(device, "nanogpt");
  KernelCache kernels(device);
  const NanogptWeights weights = NanogptWeights::random(device, {}, kWeightSeed);
  NanogptBench bench(device, stream, kernels, weights,
                     {.policy = edge_policy(options.edges), .samples = options.samples});
  std::vector<NanogptConfiguration> rows = nanogpt_named_configurations(), lengths;
  for (const int64_t length : options.lengths)
    lengths.push_back({"sweep_" + std::to_string(length), kNanogptSweepPrompt, length});
  for (const auto& list : {rows, lengths})
    for (const NanogptConfiguration& row : list) bench.check(row);

  std::vector<NanogptLine> named, sweep;
  for (const NanogptConfiguration& row : rows) named.push_back(bench.measure(row));
  for (const NanogptConfiguration& row : lengths) sweep.push_back(bench.measure(row));
  print_named(named);
  print_sweep(sweep);
  print_times("Per-step decode latency summary", named, &NanogptFigures::step_ms);
  print_times("Device time of a step, back to back", named, &NanogptFigures::device_step_ms);
  print_build(named);
  print_notes(bench.step_plan());
  std::fflush(stdout);
  if (!options.record.out.empty()) write_json(options, device, weights, bench.step_plan(), named, sweep);

  for (const auto& list : {named, sweep})
    for (const NanogptLine& line : list)
      if (const std::optional<std::string> found = token_difference(line))
        throw Error({.doing = "generate the same tokens in every mode for",
                     .object = line.configuration.name,
                     .detail = *found});
  return 0;
}

}  // namespace

void add_bench_nanogpt(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<NanogptOptions>();
  CLI::App* nanogpt = bench.add_subcommand("nanogpt", "Print the tables of the article on NanoGPT and CUDA graphs");
  nanogpt->add_option("--device", options->device, kDeviceHelp)->capture_default_str();
  nanogpt->add_option("--edges", options->edges, "what orders the nodes of a plan")
      ->check(CLI::IsMember({"programmatic", "full", "serial"}))
      ->capture_default_str();
  nanogpt->add_option("--samples", options->samples, "generations of each row and mode")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  nanogpt->add_option("--lengths", options->lengths, "tokens generated in the sweep, one or more")
      ->capture_default_str();
  add_record_options(*nanogpt, options->record);
  nanogpt->callback([options, &chosen] { chosen = [options] { return bench_nanogpt_command(*options); }; });
}

}  // namespace nodewright::cli
