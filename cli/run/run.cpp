// nodewright run: requests a line, served together as they come; one line of results for each output, in the order of
// their ends.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "cli/command.h"
#include "cli/interruption.h"
#include "cli/options/adapter_options.h"
#include "cli/options/engine_options.h"
#include "cli/options/folders/checkpoint_config.h"
#include "cli/options/option_pairs.h"
#include "cli/options/refusals.h"
#include "cli/options/request/answer_parsers.h"
#include "cli/options/request/sampling_options.h"
#include "cli/options/request/template_args.h"
#include "cli/options/whole_number.h"
#include "cli/output/say.h"
#include "cli/run/line_source.h"
#include "cli/run/request_lines.h"
#include "cli/run/result_lines.h"
#include "cli/run/serving.h"
#include "cli/session.h"
#include "engine/engine.h"
#include "engine/engine_report.h"
#include "models/config/model_config.h"
#include "runtime/error.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

// The context for requests through a pipe that stays open, without --max-context: the cache of a model's whole context
// may be larger than its weights.
constexpr int64_t kOpenContext = 4096;
// A pipe that is open for so long, with the model loaded, is one that stays open.
constexpr std::chrono::milliseconds kPatience{200};

struct RunOptions {
  SessionOptions session;
  SamplingOptions sampling;  // of requests that do not say
  std::string requests = "-";
  std::vector<std::string> names;  // of the model, in the bodies of batch lines
  int64_t max_tokens = 128;
  EngineSettings engine;
  std::string reserve = "all";
  bool stats = false;
  std::optional<double> rate;  // requests a second
  std::filesystem::path hidden_dir;
  std::filesystem::path chat_template;  // empty: the checkpoint's
  std::vector<std::string> template_args;
  ParserNames parsers;
};

// Lines of a file, all of them: they say what the engine must have. Of a pipe, those that come at once.
std::vector<RequestLine> first_lines(LineSource& source) {
  do source.wait_for_end(std::chrono::steady_clock::now() + kPatience);
  while (source.is_file() && !source.ended());
  return source.take();
}

// `all`: no other lines will come.
EngineNeeds needs_of(const RunOptions& options, const std::vector<RequestLine>& lines, bool all) {
  EngineNeeds needs;
  if (!all) {
    needs.prompt_tokens = INT32_MAX;
    needs.max_context = kOpenContext;
    needs.choices = true;
    if (!options.hidden_dir.empty()) needs.hidden = HiddenStates::full;
  }
  const auto add = [&](const AskedRequest& asked) {
    const int64_t prompt = std::ssize(asked.spec.prompt);
    if (all) needs.prompt_tokens += prompt;
    needs.max_context = std::max(needs.max_context, prompt + asked.spec.max_tokens);
    needs.choices |= std::ranges::any_of(
        asked.outputs, [](const AskedOutput& output) { return output.choice.options.needs_choices(); });
    if (!options.hidden_dir.empty()) needs.hidden = std::max(needs.hidden, asked.spec.hidden);
  };
  for (const RequestLine& line : lines) {
    if (!line.batch) add(line);
    if (line.batch)
      for (const Submission& submission : line.batch->submissions) add(submission.asked);
  }
  if (options.session.max_context > 0) needs.max_context = options.session.max_context;
  return needs;
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

void check(const RunOptions& options) {
  cli::check(options.sampling);
  template_args_of(options.template_args);
  if (options.rate && !(*options.rate >= 1e-3 && *options.rate <= 1e9))
    refuse_option("--rate", fmt::format("{} is outside 0.001 to 1e9", *options.rate));
  check_model_folder(options.session.model);
}

void serve(const RunOptions& options, LineSource& source, ResultLines& results) {
  Session session(options.session, Loading::begun);
  std::vector<RequestLine> lines = first_lines(source);
  const bool all = source.ended();
  if (all && lines.empty()) return;
  EngineSettings settings = options.engine;
  settings.engine.reserve = options.reserve == "prompt" ? Reserve::prompt : Reserve::all;
  std::unique_ptr<Engine> engine;
  try {
    engine = make_engine(settings, options.session, session, needs_of(options, lines, all));
  } catch (const Error&) {
    if (!interrupted()) throw;
    for (const RequestLine& line : lines) results.cancel(line);
    return;
  }
  if (options.stats)
    say("load      {:.0f} ms\ntuning    {}\n{}", session.model().upload_ms(), session.tuning_words(),
        start_report(engine->slots().built(), engine->slots().memory()));
  Serving serving(*engine, source, std::move(lines), results,
                  {.rate = options.rate, .seed = options.sampling.seed.value_or(0), .times = options.stats});
  serving.run();
  if (options.stats) serving.print_summary();
  // To free memory the driver would wait for a kernel that does not end.
  if (engine->slots().timed_out()) std::fflush(nullptr), std::_Exit(1);
}

int run_requests(const RunOptions& options) {
  check(options);
  std::optional<Tokenizer> tokenizer;
  if (const auto file = Tokenizer::file_in(options.session.model)) tokenizer.emplace(Tokenizer::from_file(*file));
  const ModelConfig config = read_config(options.session.model, tokenizer);
  check_pairs(options.engine, options.session, config.longest_context());
  check_adapters(options.engine, options.session, config);
  check_chat_template(options.session.model, options.chat_template);
  tell_ignored(config.generation);
  const RequestDefaults of_lines{.model = options.session.model,
                                 .sampling = options.sampling,
                                 .max_tokens = options.max_tokens,
                                 .template_args = template_args_of(options.template_args),
                                 .parsers = answer_parsers_of(options.parsers),
                                 .chat_template = options.chat_template};
  const auto make_api = [&] {
    const bool on_cpu = options.session.device.starts_with("cpu");
    ServedModel model{.config = config,
                      .tokenizer = tokenizer,
                      .folder = options.session.model,
                      .names = options.names,
                      .max_model_len = served_context(options.session, config, on_cpu),
                      .defaults = of_lines,
                      .created = static_cast<int64_t>(std::time(nullptr))};
    for (const NamedFolder& one : named_folders("--adapter", options.engine.adapters))
      model.adapters->add(one.name, one.folder);
    return std::make_unique<OpenAiApi>(std::move(model));
  };
  LineSource source(options.requests, LineReader(of_lines, config, tokenizer, make_api));
  make_folder("--hidden-dir", options.hidden_dir);

  catch_interruption();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that is gone is an error of write()
  ResultLines results(tokenizer, options.hidden_dir);
  serve(options, source, results);
  if (interrupted()) return interruption_exit_code();
  if (const std::optional<Error> failure = source.failure()) throw *failure;
  results.demand_all_served();
  return 0;
}

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Serve many requests at once: JSON lines in, JSON lines out");
  add_session_options(*command, options->session);
  add_parallel_options(*command, options->session);
  add_mode_option(*command, options->session);
  command->get_option("--max-context")
      ->description(fmt::format(
          "tokens of the longest sequence (default: as needed; through a pipe that stays open, {})", kOpenContext));
  command
      ->add_option("--requests", options->requests,
                   "JSON lines, each a request or a line of an OpenAI batch file; docs/requests.md has "
                   "their fields. -: standard input, served as it comes")
      ->capture_default_str();
  command->add_option("--served-model-name", options->names,
                      "names of the model in the bodies of batch lines (default: the folder's)");
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "most tokens of requests that set no limit; lines of a batch file have that of the HTTP "
                   "interface")
      ->check(whole_number<uint32_t, 1>)
      ->capture_default_str();
  add_chat_template(*command, options->chat_template);
  add_template_args(*command, options->template_args);
  add_answer_parsers(*command, options->parsers);
  add_sampling_options(*command, options->sampling);
  command->add_option("--max-batch,--max-num-seqs", options->engine.engine.max_batch, "requests served at once")
      ->check(whole_number<int, 1>)
      ->capture_default_str();
  add_engine_options(*command, options->engine);
  add_adapter_options(*command, options->engine, options->session);
  command
      ->add_option("--reserve", options->reserve,
                   "pages that a request gets when it is admitted: for all that it may write, or for its "
                   "prompt, and it is preempted where pages run out")
      ->check(CLI::IsMember({"all", "prompt"}))
      ->capture_default_str();
  command->add_option("--hidden-dir", options->hidden_dir,
                      "folder for the hidden states that requests ask for: a .npy file each, float32 [tokens, hidden]");
  command->add_option("--rate", options->rate, "requests a second, at random times (default: all at once)");
  command->add_flag("--stats", options->stats, "print times and counts to stderr");
  command->callback([options, &chosen] { chosen = [options] { return run_requests(*options); }; });
}

}  // namespace nodewright::cli
