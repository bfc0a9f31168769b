// replica_routing DECODE.json MODEL PREFILL.json [ROWS]: the tables of docs/scale.md as JSON on standard output, from
// the step times that these files of bench/results have. DECODE.json is of `bench decode`, alone or by MODEL.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file_to_read.h"
#include "bench/routing/simulation.h"

namespace nodewright::routing {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLongestRecord = uint64_t{64} << 20;  // bytes

Json read(const char* path) {
  return Json::parse(read_whole_file(path, kLongestRecord, {.doing = "read the step times"}));
}

StepTimes step_times(const Json& decode, const char* model, const Json& prefill) {
  StepTimes times;
  const Json& lines = decode.contains("models") ? decode["models"][model]["lines"] : decode["lines"];
  for (const Json& line : lines)
    if (line["mode"] == "explicit") times.decode.emplace_back(line["batch"], line["step_ms"]["median"]);
  for (const Json& line : prefill["lines"])
    if (line["form"] == "graph") times.prompt.emplace_back(line["tokens"], line["ms"]["median"]);
  std::ranges::sort(times.decode);
  std::ranges::sort(times.prompt);
  return times;
}

Json json_of(const Simulated& one) {
  const auto rounded = [](double value) { return std::stod(fmt::format("{:.4g}", value)); };
  return {
      {"tokens_per_s", rounded(one.tokens_per_s)},
      {"first_token_ms", {{"median", rounded(one.first_token_ms_median)}, {"p99", rounded(one.first_token_ms_p99)}}},
      {"found", rounded(one.found)}};
}

// Streams of one length, and requests of many lengths at 0.95 of what one replica takes from as many streams as rows.
Json by_replicas(const StepTimes& times, int64_t rows) {
  const Traffic streams{.requests = 4 * rows, .prompt = {128, 128}, .output = {128, 128}, .streams = rows};
  Traffic mixed{.requests = 1000, .prompt = {100, 2000}, .output = {16, 1024}, .streams = rows};
  const double most = simulate(times, mixed, {.rows = rows}).tokens_per_s;
  mixed.streams = 0;
  mixed.rate = 0.95 * most / (0.5 * static_cast<double>(mixed.output.least + mixed.output.most));
  Json lines = Json::array();
  for (const size_t replicas : {1, 2, 8, 1000})
    for (const Policy policy : {Policy::least_tokens, Policy::round_robin}) {
      const Setup setup{.replicas = replicas, .rows = rows, .policy = policy};
      lines.push_back({{"replicas", replicas},
                       {"policy", policy == Policy::least_tokens ? "least tokens" : "round robin"},
                       {"streams", json_of(simulate(times, streams, setup))},
                       {"mixed", json_of(simulate(times, mixed, setup))}});
    }
  return {{"rate_of_each", mixed.rate}, {"lines", std::move(lines)}};
}

// Requests that share a beginning of 32 pages with others, on eight replicas, each of which holds a fifth of all: what
// the cache of a 3B model has room for on 80 GB.
Json by_preference(const StepTimes& times, int64_t rows) {
  Traffic traffic{.requests = 2000,
                  .prompt = {50, 200},
                  .output = {16, 256},
                  .streams = rows,
                  .prefixes = 128,
                  .prefix_pages = 32,
                  .cached_prefixes = 200};
  const double most = simulate(times, traffic, {.replicas = 8, .rows = rows}).tokens_per_s;
  traffic.streams = 0;
  Json lines = Json::array();
  for (const double load : {0.7, 0.95})
    for (const int64_t more : {int64_t{-1}, int64_t{0}, int64_t{1024}, int64_t{2048}, int64_t{4096}, int64_t{8192},
                               int64_t{16384}, int64_t{1} << 40}) {
      traffic.rate = load * most / (0.5 * static_cast<double>(traffic.output.least + traffic.output.most));
      Setup setup{.replicas = 8, .rows = rows};
      setup.preference.most_more_tokens = more;
      if (more < 0) setup.preference.least_pages = int64_t{1} << 40;  // none counts
      lines.push_back(
          {{"load", load}, {"most_more_tokens", more}, {"result", json_of(simulate(times, traffic, setup))}});
    }
  return {{"streams_tokens_per_s", most}, {"lines", std::move(lines)}};
}

int tell(int count, char** words) {
  const int64_t rows = count > 4 ? std::atoll(words[4]) : 32;
  const StepTimes times = step_times(read(words[1]), words[2], read(words[3]));
  const Json all{{"decode", words[1]},
                 {"model", words[2]},
                 {"prefill", words[3]},
                 {"rows", rows},
                 {"by_replicas", by_replicas(times, rows)},
                 {"by_preference", by_preference(times, rows)}};
  fmt::print("{}\n", all.dump(1));
  return 0;
}

}  // namespace
}  // namespace nodewright::routing

int main(int count, char** words) {
  if (count < 4) {
    fmt::print(stderr, "replica_routing DECODE.json MODEL PREFILL.json [ROWS]\n");
    return 2;
  }
  try {
    return nodewright::routing::tell(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "replica_routing: {}\n", error.what());
    return 1;
  }
}
