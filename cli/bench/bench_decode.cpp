// nodewright bench decode: a table on standard output, and the same figures as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/steps/decode_bench.h"
#include "bench/steps/sampling_bench.h"
#include "cli/bench/bench.h"
#include "cli/options/refusals.h"
#include "cli/options/request/row_sampling_words.h"
#include "cli/options/run_mode_word.h"
#include "cli/report/bench_record.h"
#include "cli/session.h"
#include "models/step/network_form.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct DecodeOptions {
  SessionOptions session;
  std::vector<int64_t> batches{1}, contexts{1024}, adapter_ranks{0};
  std::vector<std::string> modes{"explicit"};
  std::vector<std::string> sampling;  // empty: greedy steps beside the read bandwidth
  int samples = 20, steps = 20;
  std::optional<int64_t> products_from;
  RecordOptions record;
};

nlohmann::ordered_json line_json(const DecodeBenchLine& line) {
  return {{"batch", line.batch},
          {"context", line.context},
          {"adapter_rank", line.adapter_rank},
          {"mode", std::string(to_string(line.mode))},
          {"step_ms", spread_json(line.step_ms)},
          {"wall_ms", spread_json(line.wall_ms)},
          {"weight_bytes", line.weight_bytes},
          {"kv_bytes", line.kv_bytes},
          {"read_bytes_per_s", spread_json(line.read_bytes_per_s)},
          {"share_of_read_bandwidth", line.share},
          {"nodes", line.nodes},
          {"build_ms", line.build_ms}};
}

void check_at_least(const char* option, const std::vector<int64_t>& values, int64_t least) {
  for (const int64_t n : values)
    if (n < least)
      throw Error({.doing = fmt::format("use {}", option),
                   .object = std::to_string(n),
                   .detail = fmt::format("it is less than {}", least),
                   .fault = Fault::usage});
}

nlohmann::ordered_json decode_record(const DecodeOptions& options, Session& session) {
  nlohmann::ordered_json file = measurement_record(session.device(), options.record, options.session.model);
  file["edges"] = options.session.edges;
  file["products_from"] = options.products_from.value_or(network_form(network_of(session.config())).products_from);
  file["samples"] = options.samples;
  file["steps_per_sample"] = options.steps;
  file["tuned"] = session.tuning() != nullptr;
  return file;
}

nlohmann::ordered_json sampling_line_json(const SamplingBenchLine& line) {
  return {{"batch", line.batch},
          {"context", line.context},
          {"mode", std::string(to_string(line.mode))},
          {"sampling", line.sampling},
          {"second_choice", line.second_choice},
          {"step_us", spread_json(line.step_us)},
          {"over_greedy_us", spread_json(line.over_greedy_us)},
          {"unlike_greedy", line.unlike_greedy}};
}

// Before a table is begun.
void check_contexts(const Session& session, const std::vector<int64_t>& contexts) {
  const int64_t most = *std::ranges::max_element(contexts);
  if (most > session.context_limit())
    refuse_option(
        "--context",
        fmt::format("{} keys are more than the {} tokens of the longest sequence", most, session.context_limit()),
        session.context_limit() < session.config().max_position ? "a larger --max-context" : "a shorter --context");
}

int bench_sampling_command(const DecodeOptions& options, const DecodeBenchOptions& decode) {
  if (options.session.steps.most > 1)
    refuse_pair("--sampling and --steps-per-launch", "steps of one launch cannot be chosen again", "one of them");
  Session session(options.session);
  check_contexts(session, options.contexts);
  const SamplingBenchOptions bench{.batches = options.batches,
                                   .contexts = options.contexts,
                                   .settings = row_samplings(options.sampling, session.config()),
                                   .modes = decode.modes,
                                   .policy = decode.policy,
                                   .products_from = decode.products_from,
                                   .numerics = decode.numerics,
                                   .tuning = session.tuning(),
                                   .max_context = decode.max_context,
                                   .samples = options.samples,
                                   .launches_per_sample = options.steps};
  fmt::print("{:>5} {:>7} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10}  {}\n", "batch", "context", "mode", "step us", "min",
             "over us", "min", "max", "sampling");
  const auto lines =
      bench_sampling(session.device(), session.kernels(), session.model(), bench, [](const SamplingBenchLine& l) {
        fmt::print("{:>5} {:>7} {:>9} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}  {}\n", l.batch, l.context,
                   to_string(l.mode), l.step_us.median, l.step_us.least, l.over_greedy_us.median,
                   l.over_greedy_us.least, l.over_greedy_us.most, l.sampling);
        std::fflush(stdout);
      });
  if (options.record.out.empty()) return 0;
  nlohmann::ordered_json file = decode_record(options, session);
  file["lines"] = json_list(lines, sampling_line_json);
  write_record(options.record, file);
  return 0;
}

int bench_decode_command(const DecodeOptions& options) {
  DecodeBenchOptions bench{.batches = options.batches, .contexts = options.contexts, .modes = {}};
  for (const std::string& mode : options.modes) {
    bench.modes.push_back(run_mode(mode));
    SessionOptions session = options.session;
    session.mode = mode;
    check_steps(session);
  }
  check_at_least("--batch", options.batches, 1);
  check_at_least("--context", options.contexts, 2);
  check_at_least("--adapter-rank", options.adapter_ranks, 0);
  bench.adapter_ranks = options.adapter_ranks;
  bench.policy = edge_policy(options.session.edges);
  bench.numerics = numerics_of(options.session.numerics);
  bench.max_context = options.session.max_context;
  bench.products_from = options.products_from;
  bench.samples = options.samples;
  bench.launches_per_sample = options.steps;
  bench.steps = options.session.steps;
  if (!options.sampling.empty()) return bench_sampling_command(options, bench);
  Session session(options.session);
  check_contexts(session, options.contexts);
  bench.tuning = session.tuning();
  fmt::print("{:>5} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}\n", "batch", "context", "adapter", "mode",
             "step ms", "min", "wall ms", "TB/s read", "share");
  const auto lines = bench_decode(
      session.device(), session.stream(), session.kernels(), session.model(), bench, [](const DecodeBenchLine& l) {
        fmt::print("{:>5} {:>7} {:>7} {:>9} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.3f} {:>5.1f}%\n", l.batch, l.context,
                   l.adapter_rank, to_string(l.mode), l.step_ms.median, l.step_ms.least, l.wall_ms.median,
                   l.read_bytes_per_s.median / 1e12, l.share * 100);
        std::fflush(stdout);
      });
  if (options.record.out.empty()) return 0;
  nlohmann::ordered_json file = decode_record(options, session);
  file["steps_per_launch"] = options.session.steps.most;
  file["loop"] = options.session.steps.loop;
  file["lines"] = json_list(lines, line_json);
  write_record(options.record, file);
  return 0;
}

}  // namespace

void add_bench_decode(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<DecodeOptions>();
  CLI::App* decode = bench.add_subcommand("decode", "Time a decode step beside the device's read bandwidth");
  add_session_options(*decode, options->session);
  add_steps_options(*decode, options->session);
  decode->add_option("--batch,--rows", options->batches, "rows of the step, one or more")
      ->delimiter(',')
      ->capture_default_str();
  decode->add_option("--context", options->contexts, "keys a row attends to, one or more")
      ->delimiter(',')
      ->capture_default_str();
  decode
      ->add_option("--adapter-rank", options->adapter_ranks,
                   "rank of a LoRA adapter that each row has, one or more; 0: none")
      ->delimiter(',')
      ->capture_default_str();
  decode->add_option("--modes,--mode", options->modes, "how the plan is run, one or more")
      ->delimiter(',')
      ->check(CLI::IsMember({"explicit", "captured", "eager"}))
      ->capture_default_str();
  decode->add_option("--sampling", options->sampling,
                     fmt::format("how every row chooses, one or more, beside greedy steps: {}", kSamplingWordsHelp));
  decode
      ->add_option("--products-from", options->products_from,
                   "rows from which on steps use the matmuls for many rows, held rows or cuBLASLt; 0: never (default: "
                   "as suits the network)")
      ->check(CLI::Range(0, 1 << 30));
  decode->add_option("--samples", options->samples, "of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  decode->add_option("--steps", options->steps, "launches a sample")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add_record_options(*decode, options->record);
  decode->callback([options, &chosen] { chosen = [options] { return bench_decode_command(*options); }; });
}

}  // namespace nodewright::cli
