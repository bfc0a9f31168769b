// nodewright bench serve: what a user of the engine waits for, as a table on standard output and the same as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/steps/http_traffic.h"
#include "bench/steps/traffic_bench.h"
#include "cli/bench/bench.h"
#include "cli/bench/length_mix.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_pairs.h"
#include "cli/options/refusals.h"
#include "cli/options/request/row_sampling_words.h"
#include "cli/options/whole_number.h"
#include "cli/report/bench_record.h"
#include "cli/session.h"

namespace nodewright::cli {
namespace {

constexpr int64_t kUsualRequests = 64;
constexpr int kUsualBatch = 64;  // requests served at once, where they arrive by themselves

struct ServeWords {
  SessionOptions session;
  EngineSettings engine;
  std::optional<int> max_batch;
  std::optional<double> rate;
  std::optional<int> concurrency, decoders;
  std::optional<int64_t> requests;
  std::string prompt_tokens = "128", output_tokens = "128";
  std::string url, api_key, served_name;  // of a server, instead of an engine of its own
  int64_t idle_connections = 0;
  std::vector<std::string> sampling{"greedy"};
  uint64_t seed = 0;
  int rounds = 1;
  RecordOptions record;
};

void check_serve_words(const ServeWords& words) {
  if (words.rate.has_value() + words.concurrency.has_value() + words.decoders.has_value() != 1)
    refuse_option("bench serve", "it needs one of --rate, --concurrency and --decoders",
                  "--rate 4 for requests at random times, --concurrency 8 for a new one when one ends, "
                  "--decoders 8 for a prompt that arrives beside others");
  if (words.rate && !(*words.rate > 0 && *words.rate <= 1e6))
    refuse_option("--rate", fmt::format("{} requests a second are none, or more than a million", *words.rate));
  if (!words.url.empty() && words.decoders)
    refuse_pair("--url and --decoders", "a server's other requests are not known", "--concurrency or --rate");
  if (words.url.empty() && (!words.api_key.empty() || words.idle_connections > 0))
    refuse_option(words.api_key.empty() ? "--idle-connections" : "--api-key", "without --url no server is asked");
  if (words.decoders && words.requests)
    refuse_pair("--decoders and --requests", "there is one prompt of each of --prompt-tokens",
                "--rounds, to have it arrive more often");
  if (words.decoders && words.max_batch && *words.max_batch <= *words.decoders)
    refuse_pair("--decoders and --max-batch", "the prompt that arrives needs a place, too", "a larger --max-batch");
}

// Tokens of the longest request.
int64_t longest_request(const ServeWords& words, const LengthMix& prompts, const LengthMix& outputs) {
  return words.decoders ? longest(prompts) + kDecoderPrompt + kMostOverPrompt : longest(prompts) + longest(outputs);
}

int serve_batch(const ServeWords& words) {
  if (words.max_batch) return *words.max_batch;
  if (words.decoders) return *words.decoders + 1;
  return words.concurrency.value_or(kUsualBatch);
}

nlohmann::ordered_json tail_json(const Tail& tail) {
  return {{"median", tail.median}, {"p99", tail.p99}, {"max", tail.worst}};
}

void print_tail(const char* what, const char* unit, const Tail& tail) {
  fmt::print("  {:<22} {:>10.3f} {:>10.3f} {:>10.3f} {}\n", what, tail.median, tail.p99, tail.worst, unit);
}

void print_tail_head(const std::string& title) {
  fmt::print("{}\n  {:<22} {:>10} {:>10} {:>10}\n", title, "", "median", "p99", "worst");
}

// Prints a table of requests; returns what the record says of them. `counted`: of an engine "steps", of a server
// "events". `idle_us`: an engine's, else null.
nlohmann::ordered_json tell_requests(const RowSampling& sampling, const RequestFigures& f, const char* counted,
                                     int64_t count, const Tail* idle_us) {
  print_tail_head(fmt::format("{}: {} requests in {:.3f} s", sampling.name, f.requests, f.seconds));
  print_tail("first token", "ms", f.first_token_ms);
  print_tail("between two tokens", "ms", f.between_tokens_ms);
  print_tail("whole request", "ms", f.request_ms);
  if (idle_us != nullptr) print_tail("device idle a step", "us", *idle_us);
  fmt::print("  {:.1f} tokens/s, {:.1f} prompt tokens/s, {} {}\n", f.output_tokens_per_s(), f.prompt_tokens_per_s(),
             count, counted);
  nlohmann::ordered_json json = {{"sampling", sampling.name},
                                 {"requests", f.requests},
                                 {"prompt_tokens", f.prompt_tokens},
                                 {"output_tokens", f.output_tokens},
                                 {"seconds", f.seconds},
                                 {counted, count},
                                 {"first_token_ms", tail_json(f.first_token_ms)},
                                 {"between_tokens_ms", tail_json(f.between_tokens_ms)},
                                 {"request_ms", tail_json(f.request_ms)},
                                 {"tokens_per_s", f.output_tokens_per_s()},
                                 {"prompt_tokens_per_s", f.prompt_tokens_per_s()}};
  if (idle_us != nullptr) json["idle_us"] = tail_json(*idle_us);
  return json;
}

nlohmann::ordered_json serve_traffic(const ServeWords& words, Session& session, Engine& engine,
                                     const RowSampling& sampling, const LengthMix& prompts, const LengthMix& outputs,
                                     const std::function<void(bool)>& counts) {
  const int64_t count = words.requests.value_or(kUsualRequests);
  const TrafficFigures f =
      measure_traffic(session.device(), engine,
                      {.requests = plan_arrivals(count, words.rate.value_or(0), prompts, outputs, words.seed),
                       .concurrency = words.concurrency.value_or(0),
                       .sampling = sampling,
                       .seed = words.seed,
                       .vocab = session.config().vocab,
                       .rounds = words.rounds,
                       .counts = counts});
  return tell_requests(sampling, f, "steps", f.steps, &f.idle_us);
}

nlohmann::ordered_json serve_arriving_prompt(const ServeWords& words, Session& session, Engine& engine,
                                             std::vector<StepRecord>& steps, const RowSampling& sampling,
                                             int64_t prompt, const std::function<void(bool)>& counts) {
  const ArrivingPromptFigures f = measure_arriving_prompt(engine, steps,
                                                          {.decoders = *words.decoders,
                                                           .prompt = prompt,
                                                           .sampling = sampling,
                                                           .seed = words.seed,
                                                           .vocab = session.config().vocab,
                                                           .rounds = words.rounds,
                                                           .counts = counts});
  print_tail_head(
      fmt::format("{}: {} decoders, and a prompt of {} tokens arrives", sampling.name, *words.decoders, prompt));
  print_tail("tokens before it", "ms", f.before_ms);
  print_tail("tokens beside it", "ms", f.during_ms);
  print_tail("a full step of it", "ms", f.full_step_ms);
  fmt::print("  worst gap of a decoder: {:.3f} ms, {:.3f} to {:.3f} in {} rounds; {:.2f} times a full step\n",
             f.worst_gap_ms.median, f.worst_gap_ms.least, f.worst_gap_ms.most, words.rounds, f.worst_over_step());
  fmt::print("  {:.1f} prompt tokens/s, {:.1f} alone: {:.1f} %\n", f.beside_tokens_per_s.median,
             f.alone_tokens_per_s.median, 100 * f.share());
  return {{"sampling", sampling.name},
          {"decoders", *words.decoders},
          {"prompt_tokens", prompt},
          {"between_tokens_before_ms", tail_json(f.before_ms)},
          {"between_tokens_ms", tail_json(f.during_ms)},
          {"full_step_ms", tail_json(f.full_step_ms)},
          {"worst_gap_ms", spread_json(f.worst_gap_ms)},
          {"worst_gap_over_full_step", f.worst_over_step()},
          {"prompt_tokens_per_s", spread_json(f.beside_tokens_per_s)},
          {"prompt_tokens_per_s_alone", spread_json(f.alone_tokens_per_s)},
          {"share_of_alone", f.share()}};
}

// As fields of a body; what a client may not ask for is refused.
std::string sampling_fields(const RowSampling& sampling) {
  const Sampling& s = sampling.sampling;
  if (sampling.choice.shapes())
    refuse_pair("--url and --sampling",
                fmt::format("'{}' asks for more than temperature, min_p, top_k and top_p", sampling.name));
  return fmt::format(R"(,"temperature":{},"top_k":{},"top_p":{},"min_p":{})", s.temperature, s.top_k, s.top_p, s.min_p);
}

nlohmann::ordered_json serve_over_http(const ServeWords& words, const ModelConfig& config, const RowSampling& sampling,
                                       const LengthMix& prompts, const LengthMix& outputs) {
  const HttpTrafficFigures f =
      measure_http_traffic({.url = words.url,
                            .model = words.served_name.empty() ? folder_name(words.session.model) : words.served_name,
                            .api_key = words.api_key,
                            .fields = sampling_fields(sampling),
                            .requests = plan_arrivals(words.requests.value_or(kUsualRequests), words.rate.value_or(0),
                                                      prompts, outputs, words.seed),
                            .concurrency = words.concurrency.value_or(0),
                            .seed = words.seed,
                            .vocab = config.vocab,
                            .rounds = words.rounds,
                            .idle_connections = words.idle_connections});
  return tell_requests(sampling, f, "events", f.events, nullptr);
}

// What both have, an engine and a server.
void add_words(const ServeWords& words, nlohmann::ordered_json& file) {
  if (words.rate) file["rate"] = *words.rate;
  if (words.concurrency) file["concurrency"] = *words.concurrency;
  file["prompt_tokens"] = words.prompt_tokens;
  if (!words.decoders) file["output_tokens"] = words.output_tokens;
  file["rounds"] = words.rounds;
  file["seed"] = words.seed;
}

int bench_server(const ServeWords& words, const LengthMix& prompts, const LengthMix& outputs) {
  const ModelConfig config = read_model_config(words.session.model);
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const RowSampling& sampling : row_samplings(words.sampling, config))
    lines.push_back(serve_over_http(words, config, sampling, prompts, outputs));
  if (words.record.out.empty()) return 0;
  nlohmann::ordered_json file = measurement_record(words.record);
  file["model"] = folder_name(words.session.model);
  file["url"] = words.url;
  file["idle_connections"] = words.idle_connections;
  add_words(words, file);
  file["lines"] = std::move(lines);
  write_record(words.record, file);
  return 0;
}

int bench_serve_command(const ServeWords& words) {
  check_serve_words(words);
  const LengthMix prompts = length_mix("--prompt-tokens", words.prompt_tokens);
  const LengthMix outputs = length_mix("--output-tokens", words.output_tokens);
  EngineSettings engine_settings = words.engine;
  engine_settings.engine.max_batch = serve_batch(words);
  check_model_folder(words.session.model);
  if (!words.url.empty()) return bench_server(words, prompts, outputs);
  check_pairs(engine_settings, words.session, read_model_config(words.session.model).longest_context());
  Session session(words.session);
  const std::vector<RowSampling> settings = row_samplings(words.sampling, session.config());
  const int64_t context = longest_request(words, prompts, outputs);
  if (context > session.context_limit())
    refuse_pair(words.decoders ? "--prompt-tokens and --decoders" : "--prompt-tokens and --output-tokens",
                fmt::format("a request of {} tokens, and the context is {}", context, session.context_limit()),
                "fewer of them");
  std::vector<StepRecord> steps;
  bool counts = false;
  engine_settings.logs = [&counts] { return counts; };
  const auto set_counts = [&counts](bool now) { counts = now; };
  if (words.decoders) engine_settings.engine.stepped = [&steps](const StepRecord& step) { steps.push_back(step); };
  const bool choices = std::ranges::any_of(settings, &ChoiceOptions::shapes, &RowSampling::choice);
  const std::unique_ptr<Engine> engine = make_engine(engine_settings, words.session, session,
                                                     {.prompt_tokens = std::numeric_limits<int64_t>::max(),
                                                      .max_context = std::max(context, words.session.max_context),
                                                      .choices = choices});
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const RowSampling& sampling : settings) {
    if (words.decoders)
      for (const LengthRange& range : prompts)
        lines.push_back(serve_arriving_prompt(words, session, *engine, steps, sampling, range.most, set_counts));
    else
      lines.push_back(serve_traffic(words, session, *engine, sampling, prompts, outputs, set_counts));
    std::fflush(stdout);
  }
  if (words.record.out.empty()) return 0;
  nlohmann::ordered_json file = measurement_record(session.device(), words.record, words.session.model);
  file["max_batch"] = engine_settings.engine.max_batch;
  add_words(words, file);
  file["tuned"] = session.tuning() != nullptr;
  file["lines"] = std::move(lines);
  write_record(words.record, file);
  return 0;
}

}  // namespace

void add_bench_serve(CLI::App& bench, Action& chosen) {
  auto words = std::make_shared<ServeWords>();
  CLI::App* serve = bench.add_subcommand("serve", "Serve requests as users send them, and time what they wait for");
  add_session_options(*serve, words->session);
  add_parallel_options(*serve, words->session);
  add_mode_option(*serve, words->session);
  serve->add_option("--url", words->url,
                    "of a server of OpenAI's interface, http://HOST:PORT or unix:PATH, which is asked instead of an "
                    "engine; --model has its vocabulary");
  serve->add_option("--api-key", words->api_key, "that the server demands")->needs("--url");
  serve->add_option("--served-model-name", words->served_name, "the server's name of the model (default: the folder's)")
      ->needs("--url");
  serve->add_option("--idle-connections", words->idle_connections, "that are open to the server meanwhile")
      ->check(whole_number<int, 0>)
      ->needs("--url")
      ->capture_default_str();
  serve->add_option("--rate", words->rate, "requests a second, at random times (a Poisson process)");
  serve->add_option("--concurrency", words->concurrency, "requests that are open at once: a new one when one ends")
      ->check(CLI::Range(1, 1 << 20));
  serve
      ->add_option("--decoders", words->decoders,
                   "requests that decode while one prompt of each of --prompt-tokens arrives")
      ->check(CLI::Range(1, 1 << 20));
  serve->add_option("--requests", words->requests, fmt::format("in all (default: {})", kUsualRequests))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  serve
      ->add_option("--prompt-tokens", words->prompt_tokens,
                   "of a prompt: lengths or ranges with weights, such as 128,1024:0.5 or 100-2000")
      ->capture_default_str();
  serve->add_option("--output-tokens", words->output_tokens, "of an answer, in the same words")->capture_default_str();
  serve
      ->add_option("--sampling", words->sampling,
                   fmt::format("of every request, one or more to serve one after the other: {}", kSamplingWordsHelp))
      ->capture_default_str();
  serve
      ->add_option(
          "--max-batch,--max-num-seqs", words->max_batch,
          fmt::format("requests served at once (default: --concurrency, --decoders and one, or {})", kUsualBatch))
      ->check(whole_number<int>);
  add_engine_options(*serve, words->engine);
  serve->add_option("--seed", words->seed, "of arrivals, lengths and prompts")
      ->check(whole_number<uint64_t>)
      ->capture_default_str();
  serve->add_option("--rounds", words->rounds, "of the same requests with other tokens")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_record_options(*serve, words->record);
  serve->callback([words, &chosen] { chosen = [words] { return bench_serve_command(*words); }; });
}

}  // namespace nodewright::cli
