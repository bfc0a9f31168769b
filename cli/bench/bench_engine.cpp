// nodewright bench engine: a table on standard output, and the same figures as JSON.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/steps/chains_bench.h"
#include "bench/steps/engine_bench.h"
#include "cli/bench/bench.h"
#include "cli/options/run_mode_word.h"
#include "cli/report/bench_record.h"
#include "cli/session.h"

namespace nodewright::cli {
namespace {

struct EngineBenchWords {
  SessionOptions session;
  EngineBenchOptions bench;
  RecordOptions record;
  int overlap = 1;
};

struct NamedWay {
  const char* name;
  const EngineWay* way;
};

std::vector<NamedWay> ways_of(const EngineBenchLine& line) {
  return {{"bare loop", &line.bare},
          {"pipelined", &line.pipelined},
          {"one at a time", &line.one_at_a_time},
          {"pipelined, busy", &line.busy_pipelined},
          {"one at a time, busy", &line.busy_one_at_a_time}};
}

void print_head() {
  fmt::print("{:>5} {:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "batch", "way", "step ms", "min", "p50 ms", "p99 ms",
             "gap us", "gap p99");
}

void print_engine_line(const EngineBenchLine& line, int64_t output) {
  for (const auto& [name, way] : ways_of(line)) {
    if (!way->measured()) continue;
    fmt::print("{:>5} {:<20} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.2f} {:>9.2f}\n", line.batch, name,
               way->step_ms.median, way->step_ms.least, way->median_ms.median, way->p99_ms.median, way->gap_us.median,
               way->gap_p99_us.median);
  }
  if (line.is_complete())
    fmt::print(
        "{:>5} over the bare loop {:.3f}; p99 over the median {:.3f}; what pipelining gains beside a busy host "
        "{:.3f}\n",
        line.batch, line.over_bare(), line.pipelined.p99_ms.median / line.pipelined.median_ms.median, line.busy_gain());
  else
    fmt::print(
        "{:>5} the engine had no step of {} requests: an answer of {} tokens ended before the last prompt had been "
        "read; try a longer --output\n",
        line.batch, line.batch, output);
  std::fflush(stdout);
}

nlohmann::ordered_json engine_line_json(const EngineBenchLine& line) {
  nlohmann::ordered_json json{{"batch", line.batch}};
  for (const auto& [name, way] : ways_of(line)) {
    if (!way->measured()) continue;
    json[name] = {{"step_ms", spread_json(way->step_ms)},
                  {"median_ms", spread_json(way->median_ms)},
                  {"p99_ms", spread_json(way->p99_ms)},
                  {"gap_us", way->gap_us.median},
                  {"gap_p99_us", way->gap_p99_us.median}};
  }
  if (!line.is_complete()) return json;
  json["over_bare"] = line.over_bare();
  json["busy_gain"] = line.busy_gain();
  return json;
}

// The times of each batch when it decodes in two chains of half its rows, as --overlap runs prompts.
std::vector<ChainsTimes> chains_of(const EngineBenchWords& words, const EngineBenchOptions& bench, Session& session) {
  std::vector<ChainsTimes> all;
  if (words.overlap < 2) return all;
  const int steps = session.device().driver().is_cpu() ? 5 : 200;
  for (const int64_t batch : bench.batches) {
    const ChainsTimes& times = all.emplace_back(bench_chains(session.places(), {.rows = batch,
                                                                                .context = bench.prompt,
                                                                                .steps = steps,
                                                                                .rounds = bench.rounds,
                                                                                .numerics = bench.numerics,
                                                                                .policy = bench.policy,
                                                                                .tuning = bench.tuning}));
    fmt::print("{:>5} two chains of {} rows {:.4f} ms a step, one of all {:.4f}: {:.3f}\n", batch, batch / 2,
               times.two.median, times.one.median, times.two.median / times.one.median);
    std::fflush(stdout);
  }
  return all;
}

int bench_engine_command(const EngineBenchWords& words) {
  EngineBenchOptions bench = words.bench;
  bench.mode = run_mode(words.session.mode);
  bench.max_context = words.session.max_context;
  bench.policy = edge_policy(words.session.edges);
  bench.numerics = numerics_of(words.session.numerics);
  Session session(words.session);
  bench.tuning = session.tuning();
  const std::vector<ChainsTimes> chains = chains_of(words, bench, session);
  const auto lines = bench_engine(session.places(), bench, [&bench, first = true](const EngineBenchLine& line) mutable {
    if (std::exchange(first, false)) print_head();
    print_engine_line(line, bench.output);
  });
  if (words.record.out.empty()) return 0;
  nlohmann::ordered_json file = measurement_record(session.device(), words.record, words.session.model);
  file["mode"] = words.session.mode;
  file["prompt"] = bench.prompt;
  file["output"] = bench.output;
  file["busy_us"] = bench.busy_us;
  file["rounds"] = bench.rounds;
  file["lines"] = json_list(lines, engine_line_json);
  for (size_t i = 0; i < chains.size(); ++i)
    file["lines"][i]["chains"] = {{"one_ms", spread_json(chains[i].one)}, {"two_ms", spread_json(chains[i].two)}};
  write_record(words.record, file);
  return 0;
}

}  // namespace

void add_bench_engine(CLI::App& bench, Action& chosen) {
  auto words = std::make_shared<EngineBenchWords>();
  CLI::App* engine = bench.add_subcommand("engine", "Time the engine's steps beside a bare loop of the same graphs");
  add_session_options(*engine, words->session);
  add_parallel_options(*engine, words->session);
  add_mode_option(*engine, words->session);
  engine->add_option("--batch", words->bench.batches, "requests at once, one or more")->capture_default_str();
  engine->add_option("--prompt", words->bench.prompt, "tokens of each prompt")->capture_default_str();
  engine->add_option("--output", words->bench.output, "tokens of each answer")->capture_default_str();
  engine->add_option("--busy-us", words->bench.busy_us, "that the host spends after a step, where it is busy")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  engine->add_option("--rounds", words->bench.rounds, "of each way")->check(CLI::Range(1, 1000))->capture_default_str();
  engine
      ->add_option("--overlap", words->overlap,
                   "2: with --tp, also time the batch in two chains of half its rows, one of which computes while the "
                   "other exchanges")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  add_record_options(*engine, words->record);
  engine->callback([words, &chosen] { chosen = [words] { return bench_engine_command(*words); }; });
}

}  // namespace nodewright::cli
