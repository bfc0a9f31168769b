// nodewright run: requests from a JSONL file, served together; one line of results for each, in the order of their
// ends.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <thread>

#include "cli/choice_fields.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/json_numbers.h"
#include "cli/npy.h"
#include "cli/option_pairs.h"
#include "cli/sampling_options.h"
#include "cli/session.h"
#include "cli/standard_output.h"
#include "cli/whole_number.h"
#include "engine/engine_report.h"
#include "engine/tokenizer.h"
#include "models/model_config.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

using nlohmann::ordered_json;
using RunClock = std::chrono::steady_clock;

struct RunOptions {
  SessionOptions session;
  SamplingOptions sampling;  // of requests that do not say
  std::string requests = "-";
  int64_t max_tokens = 128;
  EngineSettings engine;
  std::string reserve = "all";
  bool stats = false;
  std::optional<double> rate;  // requests a second
  std::filesystem::path hidden_dir;
};

// One line of the input, and what has come of it.
struct ServedLine {
  int64_t number = 0;  // of the line, from 1
  ordered_json name;   // "id" of the line, or its number
  RequestSpec spec;
  Sampling sampling;
  LineChoice choice;
  std::vector<TokenLogprobs> logprobs, prompt_logprobs;
  std::vector<float> hidden;  // [tokens, hidden]
  int64_t hidden_tokens = 0;
  RunClock::time_point due, last_token;
};

std::vector<int32_t> token_ids(const ordered_json& value, const std::string& name) {
  if (!value.is_array()) throw std::invalid_argument(name + " is no list of token ids");
  std::vector<int32_t> ids;
  for (const ordered_json& id : value) ids.push_back(static_cast<int32_t>(integer(id, name, INT32_MIN, INT32_MAX)));
  return ids;
}

HiddenStates hidden_states(const ordered_json& value) {
  for (const HiddenStates hidden : {HiddenStates::none, HiddenStates::last, HiddenStates::full})
    if (value.is_string() && value.get<std::string>() == name_of(hidden)) return hidden;
  throw std::invalid_argument(fmt::format("hidden is {}, expected \"none\", \"last\" or \"full\"", value.dump()));
}

class LineReader {
 public:
  LineReader(const RunOptions& options, const ModelConfig& config, const std::optional<Tokenizer>& tokenizer)
      : options_(options), config_(config), tokenizer_(tokenizer), choices_(config, tokenizer) {}

  std::vector<ServedLine> read(std::istream& input) {
    std::vector<ServedLine> lines;
    std::string text;
    for (int64_t number = 1; std::getline(input, text); ++number) {
      if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
      try {
        lines.push_back(line(ordered_json::parse(text), number));
      } catch (const std::exception& error) {
        throw Error({.doing = "read",
                     .object = fmt::format("line {} of {}", number,
                                           options_.requests == "-" ? "standard input" : options_.requests),
                     .detail = error.what(),
                     .fault = Fault::usage});
      }
    }
    return lines;
  }

 private:
  ServedLine line(const ordered_json& json, int64_t number) {
    static const std::vector<std::string> kKnown = {"id",          "prompt",     "prompt_ids", "max_tokens",
                                                    "temperature", "top_k",      "top_p",      "seed",
                                                    "stop_ids",    "ignore_eos", "hidden"};
    if (!json.is_object()) throw std::invalid_argument("it is not a JSON object");
    for (const auto& [key, value] : json.items())
      if (std::ranges::count(kKnown, key) + std::ranges::count(kChoiceFields, key) == 0)
        throw std::invalid_argument(fmt::format("'{}' is not known", key));
    if (json.contains("prompt") == json.contains("prompt_ids"))
      throw std::invalid_argument("it needs either prompt or prompt_ids");
    if (json.contains("prompt") && !tokenizer_)
      throw std::invalid_argument("its prompt is text, and the model has no tokenizer.json");
    ServedLine line{.number = number,
                    .name = json.value("id", ordered_json(number)),
                    .spec = {},
                    .sampling = {},
                    .choice = {},
                    .logprobs = {},
                    .prompt_logprobs = {},
                    .hidden = {},
                    .hidden_tokens = 0,
                    .due = {},
                    .last_token = {}};
    RequestSpec& spec = line.spec;
    spec.prompt = json.contains("prompt_ids")
                      ? token_ids(json["prompt_ids"], "prompt_ids")
                      : tokenizer_->encode(json["prompt"].get<std::string>(), {.add_special_tokens = true});
    spec.max_tokens = options_.max_tokens;
    if (json.contains("max_tokens")) spec.max_tokens = integer(json["max_tokens"], "max_tokens", 1, UINT32_MAX);
    if (json.contains("stop_ids")) spec.stop_ids = token_ids(json["stop_ids"], "stop_ids");
    std::vector<int32_t> eos(config_.eos.begin(), config_.eos.end());
    if (json.contains("ignore_eos") && json["ignore_eos"].get<bool>()) eos.clear();
    spec.stop_ids.insert(spec.stop_ids.end(), eos.begin(), eos.end());
    if (json.contains("hidden")) spec.hidden = hidden_states(json["hidden"]);
    line.choice = choices_.read(json, eos);
    line.sampling = sampling_of_line(json);
    return line;
  }

  Sampling sampling_of_line(const ordered_json& json) const {
    SamplingOptions sampling = options_.sampling;
    if (json.contains("temperature") || json.contains("top_k") || json.contains("top_p")) sampling.greedy = false;
    if (json.contains("temperature")) sampling.temperature = json["temperature"].get<double>();
    if (json.contains("top_k")) sampling.top_k = static_cast<uint32_t>(integer(json["top_k"], "top_k", 0, INT32_MAX));
    if (json.contains("top_p")) sampling.top_p = json["top_p"].get<double>();
    if (json.contains("seed")) sampling.seed = static_cast<uint64_t>(integer(json["seed"], "seed", 0, INT64_MAX));
    check(sampling);
    return sampling_of(sampling, config_.generation);
  }

  const RunOptions& options_;
  const ModelConfig& config_;
  const std::optional<Tokenizer>& tokenizer_;
  ChoiceReader choices_;
};

volatile std::sig_atomic_t interrupted = 0;

// Serves the lines until each has its end, and prints it.
class Serving {
 public:
  Serving(Engine& engine, std::vector<ServedLine> lines, const std::optional<Tokenizer>& tokenizer,
          std::filesystem::path hidden_dir)
      : engine_(engine), lines_(std::move(lines)), tokenizer_(tokenizer), hidden_dir_(std::move(hidden_dir)) {}

  void run() {
    start_ = RunClock::now();
    while (ended_ < lines_.size()) {
      if (interrupted && !cancelled_) cancel_all();
      submit_due();
      const bool advanced = engine_.advance();
      take();
      if (!advanced && next_ < lines_.size()) std::this_thread::sleep_until(lines_[next_].due);
    }
    while (engine_.advance()) continue;
    seconds_ = std::chrono::duration<double>(RunClock::now() - start_).count();
  }

  const std::optional<Error>& unwritten() const { return unwritten_ ? unwritten_ : hidden_unwritten_; }

  void spread_arrivals(double rate, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> gap(rate);
    std::chrono::duration<double> at{0};
    const auto now = RunClock::now();
    for (ServedLine& line : lines_) {
      at += std::chrono::duration<double>(gap(random));
      line.due = now + std::chrono::duration_cast<RunClock::duration>(at);
    }
  }

  void print_summary() const {
    const EngineStats& stats = engine_.stats();
    std::string ends;
    for (const auto& [reason, count] : ends_) ends += fmt::format("{}{} {}", ends.empty() ? "" : ", ", count, reason);
    const KvPool::Stats& pool = engine_.pipeline().pool().stats();
    fmt::print(stderr, "requests  {} in {:.3f} s: {}\n", lines_.size(), seconds_, ends);
    fmt::print(stderr, "tokens    {} of prompts ({} found in the cache), {} chosen, {:.1f} a second\n",
               pool.prompt_tokens, pool.found_tokens, stats.output_tokens,
               static_cast<double>(stats.output_tokens) / seconds_);
    fmt::print(stderr, "{}", serving_report(engine_));
    const auto times = [](const char* what, std::vector<double> ms) {
      if (ms.empty()) return;
      std::ranges::sort(ms);
      const auto at = [&](double share) { return ms[static_cast<size_t>(share * static_cast<double>(ms.size() - 1))]; };
      fmt::print(stderr, "{}{:.3f} ms at the median, {:.3f} at the 99th percentile\n", what, at(0.5), at(0.99));
    };
    times("first     token after ", first_ms_);
    times("next      token after ", next_ms_);
  }

 private:
  void submit_due() {
    while (next_ < lines_.size() && (cancelled_ || lines_[next_].due <= RunClock::now())) {
      ServedLine& line = lines_[next_++];
      if (line.due == RunClock::time_point{}) line.due = start_;
      if (cancelled_) {
        print(line, "cancelled", {}, "");
        continue;
      }
      if (line.spec.hidden != HiddenStates::none && hidden_dir_.empty()) {
        print(line, "refused", {},
              fmt::format("it asks for {} hidden states, and no --hidden-dir says where they are to go",
                          name_of(line.spec.hidden)));
        continue;
      }
      const auto [id, reason] = engine_.submit(line.spec, line.sampling, line.choice.options);
      if (id)
        by_id_[*id] = &line;
      else
        print(line, "refused", {}, reason);
    }
  }

  void take() {
    const std::vector<CommittedToken> tokens = engine_.take_tokens();
    const auto now = RunClock::now();
    const auto ms = [now](RunClock::time_point since) {
      return std::chrono::duration<double, std::milli>(now - since).count();
    };
    for (const CommittedToken& token : tokens) {
      ServedLine& line = *by_id_.at(token.request);
      const bool first = line.last_token == RunClock::time_point{};
      (first ? first_ms_ : next_ms_).push_back(ms(first ? line.due : line.last_token));
      line.last_token = now;
    }
    for (TokenLogprobs& one : engine_.take_logprobs()) by_id_.at(one.request)->logprobs.push_back(std::move(one));
    for (TokenLogprobs& one : engine_.take_prompt_logprobs())
      by_id_.at(one.request)->prompt_logprobs.push_back(std::move(one));
    for (const HiddenRows& rows : engine_.take_hidden()) {
      ServedLine& line = *by_id_.at(rows.request);
      line.hidden.insert(line.hidden.end(), rows.values.begin(), rows.values.end());
      line.hidden_tokens += rows.rows;
    }
    for (const Resolution& end : engine_.take_resolutions()) {
      const bool stopped = end.reason == EndReason::stop_id;
      ServedLine& line = *by_id_.at(end.request);
      print(line, stopped ? "stop" : name_of(end.reason), end.outputs, end.message);
      line.hidden = {};
      by_id_.erase(end.request);
    }
  }

  // Ctrl-C: what was chosen so far is printed.
  void cancel_all() {
    cancelled_ = true;
    for (const auto& [id, line] : by_id_) engine_.cancel(id);
  }

  void print(const ServedLine& line, std::string_view reason, std::vector<int32_t> outputs, std::string message) {
    ordered_json result{{"id", line.name}, {"reason", reason}, {"ids", outputs}};
    if (reason == "stop") outputs.pop_back();  // no part of the text
    if (line.choice.stops) line.choice.stops->finish();
    if (tokenizer_) result["text"] = line.choice.stops ? line.choice.stops->text() : tokenizer_->decode(outputs, true);
    if (line.choice.options.logprobs >= 0) result["logprobs"] = logprobs_json(line.logprobs);
    if (line.choice.options.prompt_logprobs >= 0) result["prompt_logprobs"] = logprobs_json(line.prompt_logprobs);
    if (line.hidden_tokens > 0) result["hidden"] = written_hidden(line, message);
    if (!message.empty()) result["message"] = message;
    write(result.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    ++ends_[std::string(reason)];
    ++ended_;
  }

  // The path, or null: what could not be written is the message, and in the end the first of them is an error.
  ordered_json written_hidden(const ServedLine& line, std::string& message) {
    const std::filesystem::path path = hidden_dir_ / fmt::format("{}.npy", line.number);
    try {
      write_npy(path, line.hidden, line.hidden_tokens, static_cast<int64_t>(line.hidden.size()) / line.hidden_tokens);
      return path.string();
    } catch (const Error& error) {
      message += (message.empty() ? "" : "; ") + std::string(error.what());
      if (!hidden_unwritten_) hidden_unwritten_ = error;
      return nullptr;
    }
  }

  // Nobody reads any more: what is left is cancelled, and the first failure told in the end.
  void write(const std::string& text) {
    if (unwritten_) return;
    try {
      write_standard_output(text);
    } catch (const Error& error) {
      unwritten_ = error;
      cancel_all();
    }
  }

  Engine& engine_;
  std::vector<ServedLine> lines_;
  const std::optional<Tokenizer>& tokenizer_;
  std::filesystem::path hidden_dir_;  // empty: nobody may ask for hidden states
  std::map<RequestId, ServedLine*> by_id_;
  size_t next_ = 0, ended_ = 0;
  bool cancelled_ = false;
  std::optional<Error> unwritten_, hidden_unwritten_;
  RunClock::time_point start_;
  double seconds_ = 0;
  std::map<std::string, int64_t> ends_;
  std::vector<double> first_ms_, next_ms_;
};

std::vector<ServedLine> read_lines(const RunOptions& options, LineReader& reader) {
  if (options.requests == "-") return reader.read(std::cin);
  std::ifstream file(options.requests);
  if (file && std::filesystem::is_directory(options.requests)) errno = EISDIR;
  if (!file || std::filesystem::is_directory(options.requests))
    throw Error({.doing = "read", .object = options.requests, .detail = std::strerror(errno), .fault = Fault::usage});
  return reader.read(file);
}

int64_t prompt_tokens(const std::vector<ServedLine>& lines) {
  size_t tokens = 0;
  for (const ServedLine& line : lines) tokens += line.spec.prompt.size();
  return static_cast<int64_t>(tokens);
}

// Tokens of the longest request, where --max-context does not say.
int64_t longest(const RunOptions& options, const std::vector<ServedLine>& lines) {
  if (options.session.max_context > 0) return options.session.max_context;
  int64_t most = 1;
  for (const ServedLine& line : lines)
    most = std::max(most, static_cast<int64_t>(line.spec.prompt.size()) + line.spec.max_tokens);
  return most;
}

void make_folder(const char* option, const std::filesystem::path& folder) {
  std::error_code failure;
  if (folder.empty() || std::filesystem::is_directory(folder, failure)) return;
  if (std::filesystem::create_directories(folder, failure); failure)
    throw Error({.doing = std::string("use ") + option,
                 .object = folder.string(),
                 .detail = failure.message(),
                 .fault = Fault::usage});
}

int run_requests(const RunOptions& options) {
  check(options.sampling);
  if (options.max_tokens < 1)
    throw Error({.doing = "use", .object = "--max-tokens", .detail = "it is less than 1", .fault = Fault::usage});
  if (options.rate && !(*options.rate >= 1e-3 && *options.rate <= 1e9))
    throw Error({.doing = "use",
                 .object = "--rate",
                 .detail = fmt::format("{} is outside 0.001 to 1e9", *options.rate),
                 .fault = Fault::usage});
  check_model_folder(options.session.model);
  std::optional<Tokenizer> tokenizer;
  if (std::filesystem::exists(options.session.model / "tokenizer.json"))
    tokenizer.emplace(Tokenizer::from_file(options.session.model / "tokenizer.json"));
  const ModelConfig config = read_model_config(options.session.model);
  check_pairs(options.engine, options.session, config.max_position);
  std::vector<ServedLine> lines = [&] {
    LineReader reader(options, config, tokenizer);
    return read_lines(options, reader);
  }();
  make_folder("--hidden-dir", options.hidden_dir);

  Session session(options.session, Loading::begun);
  EngineSettings settings = options.engine;
  settings.engine.reserve = options.reserve == "prompt" ? Reserve::prompt : Reserve::all;
  EngineNeeds needs{
      .prompt_tokens = prompt_tokens(lines),
      .max_context = longest(options, lines),
      .choices = std::ranges::any_of(lines, [](const ServedLine& l) { return l.choice.options.needs_choices(); })};
  for (const ServedLine& line : lines)
    if (!options.hidden_dir.empty()) needs.hidden = std::max(needs.hidden, line.spec.hidden);
  const std::unique_ptr<Engine> made = make_engine(settings, options.session, session, needs);
  Engine& engine = *made;
  if (options.stats)
    fmt::print(stderr, "load      {:.0f} ms\n{}", session.model().upload_ms(),
               start_report(engine.slots().built(), engine.slots().memory()));

  Serving serving(engine, std::move(lines), tokenizer, options.hidden_dir);
  if (options.rate) serving.spread_arrivals(*options.rate, options.sampling.seed);
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGPIPE, SIG_IGN);  // a reader that is gone is an error of write()
  serving.run();
  std::signal(SIGINT, SIG_DFL);
  if (options.stats) serving.print_summary();
  // To free memory the driver would wait for a kernel that does not end.
  if (engine.slots().timed_out()) std::fflush(nullptr), std::_Exit(1);
  if (serving.unwritten()) throw *serving.unwritten();
  return engine.pipeline().mode() == PipelineMode::failed || interrupted ? 1 : 0;
}

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Serve many requests at once: JSON lines in, JSON lines out");
  add_session_options(*command, options->session);
  add_mode_option(*command, options->session);
  command
      ->add_option(
          "--requests", options->requests,
          "a request a line: prompt or prompt_ids, and id, max_tokens, temperature, top_k, top_p, seed, "
          "stop_ids, ignore_eos, stop, regex, json_schema, logprobs, prompt_logprobs, hidden, min_p, min_tokens, "
          "logit_bias, bad_ids, bad_sequences, bad_words, repetition_penalty, presence_penalty, frequency_penalty; "
          "-: standard input")
      ->capture_default_str();
  command->add_option("--max-tokens", options->max_tokens, "of requests that do not say")
      ->check(whole_number<uint32_t>)
      ->capture_default_str();
  add_sampling_options(*command, options->sampling);
  command->add_option("--max-batch,--max-num-seqs", options->engine.engine.max_batch, "requests served at once")
      ->check(whole_number<int>)
      ->capture_default_str();
  add_engine_options(*command, options->engine);
  command
      ->add_option("--reserve", options->reserve,
                   "pages of a request when it is admitted: for all that it may write, or for its prompt, and it is "
                   "preempted where they run out")
      ->check(CLI::IsMember({"all", "prompt"}))
      ->capture_default_str();
  command->add_option("--hidden-dir", options->hidden_dir,
                      "folder for the hidden states that requests ask for: a .npy file each, float32 [tokens, hidden]");
  command->add_option("--rate", options->rate, "requests a second, at random times (default: all at once)");
  command->add_flag("--stats", options->stats, "print times and counts to stderr");
  command->callback([options, &chosen] { chosen = [options] { return run_requests(*options); }; });
}

}  // namespace nodewright::cli
