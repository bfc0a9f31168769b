// nodewright bench prefill: a table on standard output, and the same figures as JSON.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/steps/prefill_bench.h"
#include "cli/bench/bench.h"
#include "cli/report/bench_record.h"
#include "cli/session.h"
#include "engine/option_range.h"
#include "models/step/network_form.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct PrefillOptions {
  SessionOptions session;
  PrefillBenchOptions bench;
  std::vector<std::string> forms{"graph", "piecewise", "eager"};
  RecordOptions record;
};

nlohmann::ordered_json prefill_line_json(const PrefillBenchLine& line) {
  return {{"tokens", line.tokens},
          {"form", std::string(to_string(line.form))},
          {"ms", spread_json(line.ms)},
          {"tokens_per_s", static_cast<double>(line.tokens) / (line.ms.median * 1e-3)},
          {"weight_flops", line.weight_flops},
          {"attention_flops", line.attention_flops},
          {"product_flops_per_s", spread_json(line.product_flops_per_s)},
          {"share_of_matrix_rate", line.share}};
}

int bench_prefill_command(const PrefillOptions& options) {
  PrefillBenchOptions bench = options.bench;
  bench.forms.clear();
  for (const std::string& form : options.forms) bench.forms.push_back(prefill_form(form));
  for (const int64_t tokens : bench.tokens)
    if (tokens < 1 || tokens > kMostRows)
      throw Error({.doing = "use --tokens",
                   .object = std::to_string(tokens),
                   .detail = fmt::format("it is outside 1 to {}", kMostRows),
                   .fault = Fault::usage});
  Session session(options.session);
  bench.tuning = session.tuning();
  bench.policy = edge_policy(options.session.edges);
  bench.numerics = numerics_of(options.session.numerics);
  bench.max_context = options.session.max_context;
  fmt::print("{:>6} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9} {:>6}\n", "tokens", "form", "ms", "min", "max",
             "tokens/s", "TFLOP", "TFLOP/s", "share");
  const auto lines = bench_prefill(
      session.device(), session.stream(), session.kernels(), session.model(), bench, [](const PrefillBenchLine& l) {
        const double flops = l.weight_flops + l.attention_flops, seconds = l.ms.median * 1e-3;
        fmt::print("{:>6} {:>9} {:>9.3f} {:>9.3f} {:>9.3f} {:>10.0f} {:>9.4f} {:>9.2f} {:>5.1f}%\n", l.tokens,
                   to_string(l.form), l.ms.median, l.ms.least, l.ms.most, static_cast<double>(l.tokens) / seconds,
                   flops * 1e-12, flops / seconds * 1e-12, l.share * 100);
        std::fflush(stdout);
      });
  if (options.record.out.empty()) return 0;
  nlohmann::ordered_json file = measurement_record(session.device(), options.record, options.session.model);
  file["edges"] = options.session.edges;
  file["numerics"] = options.session.numerics;
  file["samples"] = bench.samples;
  file["products_from"] = bench.products_from.value_or(network_form(network_of(session.config())).products_from);
  file["lines"] = json_list(lines, prefill_line_json);
  write_record(options.record, file);
  return 0;
}

}  // namespace

void add_bench_prefill(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<PrefillOptions>();
  CLI::App* prefill = bench.add_subcommand("prefill", "Time prompts of one step beside the device's matrix rate");
  add_session_options(*prefill, options->session);
  refuse_mode(*prefill, "a prompt is run in each of --forms graph, piecewise and eager");
  prefill->add_option("--tokens", options->bench.tokens, "of the prompt, one or more")->capture_default_str();
  prefill->add_option("--forms", options->forms, "graph, piecewise, eager")->capture_default_str();
  prefill
      ->add_option("--products-from", options->bench.products_from,
                   "tokens from which steps are multiplied for many rows, by held rows or cuBLASLt; 0: never (default: "
                   "as suits the network)")
      ->check(CLI::Range(0, 1 << 30));
  prefill->add_option("--samples", options->bench.samples, "of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add_record_options(*prefill, options->record);
  prefill->callback([options, &chosen] { chosen = [options] { return bench_prefill_command(*options); }; });
}

}  // namespace nodewright::cli
