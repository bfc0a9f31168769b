// nodewright chat: a conversation, message by message. /exit, the end of the input and Ctrl-C at the prompt end it;
// Ctrl-C during an answer ends the answer.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "cli/command.h"
#include "cli/generate/conversation.h"
#include "cli/generate/line_editor.h"
#include "cli/interruption.h"
#include "cli/options/adapter_options.h"
#include "cli/options/checkpoint_config.h"
#include "cli/options/choice_flags.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_pairs.h"
#include "cli/options/row_sampling_words.h"
#include "cli/options/sampling_options.h"
#include "cli/options/template_args.h"
#include "cli/options/whole_number.h"
#include "cli/session.h"
#include "runtime/error.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

constexpr int64_t kUsualContext = 4096;  // tokens; the cache of a model's whole context may be larger than its weights
constexpr int64_t kMostPromptRows = 2048;  // of graphs for what a turn adds; a longer prompt takes several steps

constexpr std::string_view kHelp =
    "/help    these lines\n"
    "/reset   forget what was said\n"
    "/stats   the times of the last answer, and how much the cache has saved\n"
    "/exit    leave; so does Ctrl-D\n"
    "Ctrl-C ends an answer, and leaves at the prompt. A line that ends in \\ goes on in the next one; lines between "
    "two\n"
    "of \"\"\" are one message.\n";

struct ChatOptions {
  SessionOptions session;
  EngineSettings engine;
  SamplingOptions sampling;
  ChoiceFlags choice;
  std::optional<std::string> system;
  std::vector<std::string> template_args;
  int64_t max_tokens = 512;
  bool stats = false;
};

// The next message, which may have several lines, or nothing at the end.
std::optional<std::string> read_message(LineEditor& editor) {
  constexpr std::string_view kQuotes = "\"\"\"";
  std::optional<std::string> line = editor.read("> ");
  if (!line) return std::nullopt;
  std::string message = *line;
  if (message == kQuotes) {
    message.clear();
    while ((line = editor.read("... ")) && *line != kQuotes) message += (message.empty() ? "" : "\n") + *line;
    return message;
  }
  while (message.ends_with('\\') && (line = editor.read("... "))) {
    message.back() = '\n';
    message += *line;
  }
  return message;
}

// What is counted over the answers so far.
struct AnswerTotals {
  int64_t answers = 0, prompt_tokens = 0, found_tokens = 0, tokens = 0;
  RequestOutcome last;
  void add(const RequestOutcome& outcome) {
    ++answers;
    prompt_tokens += outcome.prompt_tokens;
    found_tokens += outcome.found_tokens;
    tokens += outcome.tokens;
    last = outcome;
  }
};

void print_totals(const AnswerTotals& totals, const Conversation& conversation) {
  if (totals.answers == 0) return fmt::print(stderr, "no answer yet\n");
  fmt::print(stderr, "{}", outcome_report(totals.last));
  fmt::print(stderr, "all       {} answers of {} tokens; {} of {} prompt tokens came from the cache\n", totals.answers,
             totals.tokens, totals.found_tokens, totals.prompt_tokens);
  fmt::print(stderr, "context   {} of {} tokens, {} turns\n", totals.last.prompt_tokens + totals.last.tokens,
             conversation.context(), conversation.turns());
}

void tell_left_out(size_t turns, const std::string& first, int64_t context) {
  constexpr size_t kShown = 40;  // bytes
  std::string beginning = first.substr(0, kShown);
  std::ranges::replace(beginning, '\n', ' ');
  fmt::print(stderr, "nodewright: the context of {} tokens is full: {} left out, from \"{}{}\" on\n", context,
             turns == 1 ? "the oldest turn is" : fmt::format("the oldest {} turns are", turns), beginning,
             first.size() > kShown ? "..." : "");
}

enum class Command { none, unknown, reset, stats, help, leave };

// A message may begin with a path: a command is a slash and letters, and nothing else.
Command command_of(const std::string& message) {
  if (message == "/exit" || message == "/quit") return Command::leave;
  if (message == "/help") return Command::help;
  if (message == "/reset") return Command::reset;
  if (message == "/stats") return Command::stats;
  const bool is_word = message.size() > 1 && message[0] == '/' &&
                       std::all_of(message.begin() + 1, message.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  return is_word ? Command::unknown : Command::none;
}

bool terminated() { return cli::interrupted() && interruption_exit_code() == 128 + SIGTERM; }

// Returns the exit code: 1 where a message could not be answered.
int talk(Conversation& conversation, Sampling sampling, bool stats) {
  LineEditor editor;
  AnswerTotals totals;
  int exit_code = 0;
  const auto left_out = [&](size_t turns, const std::string& first) {
    tell_left_out(turns, first, conversation.context());
  };
  while (const std::optional<std::string> message = read_message(editor)) {
    if (message->find_first_not_of(" \t\n") == std::string::npos) continue;
    switch (command_of(*message)) {
      case Command::leave:
        return exit_code;
      case Command::help:
        fmt::print(stderr, "{}", kHelp);
        continue;
      case Command::reset:
        conversation.reset();
        continue;
      case Command::stats:
        print_totals(totals, conversation);
        continue;
      case Command::unknown:
        fmt::print(stderr, "nodewright: there is no command {}; /help lists them\n", *message);
        continue;
      case Command::none:
        break;
    }
    try {
      totals.add(conversation.answer(*message, sampling, cli::interrupted, left_out));
    } catch (const Error& error) {
      if (error.parts().fault != Fault::usage) throw;
      fmt::print(stderr, "nodewright: {}\n", error.what());
      exit_code = 1;
      continue;
    }
    if (stats) fmt::print(stderr, "{}", outcome_report(totals.last));
    if (terminated()) return interruption_exit_code();
    if (cli::interrupted()) forget_interruption();
    ++*sampling.seed;  // or each turn would draw the same numbers
  }
  if (editor.is_terminal()) fmt::print(stderr, "\n");  // behind the ^D or ^C
  return terminated() ? interruption_exit_code() : exit_code;
}

int chat(const ChatOptions& options) {
  if (options.max_tokens < 1)
    throw Error({.doing = "use",
                 .object = "--max-tokens",
                 .detail = fmt::format("{} is less than 1", options.max_tokens),
                 .fault = Fault::usage});
  cli::check(options.sampling);
  RequestJson template_args = template_args_of(options.template_args);
  check_model_folder(options.session.model);
  const ChatTemplate chat_template = ChatTemplate::from_folder(options.session.model);
  const std::optional<Tokenizer> tokenizer = Tokenizer::from_folder(options.session.model);
  const ModelConfig config = read_config(options.session.model, tokenizer);
  check_pairs(options.engine, options.session, config.longest_context());
  check_adapters(options.engine, options.session, config);
  const std::vector<int32_t> eos(config.eos.begin(), config.eos.end());
  ChoiceReader choices(config, tokenizer);
  const ChoiceOptions choice = read_choice(choices, options.choice, options.sampling, eos).options;
  stop_ids_of(options.choice, eos, config.vocab);  // what is wrong is told before anything is loaded
  only_adapter(options.engine);
  tell_ignored(config.generation);

  Session session(options.session, Loading::begun);
  const int64_t context = options.session.max_context > 0 ? options.session.max_context
                                                          : std::min<int64_t>(session.context_limit(), kUsualContext);
  const std::unique_ptr<Engine> engine = make_engine(
      options.engine, options.session, session,
      {.prompt_tokens = std::min(context, kMostPromptRows), .max_context = context, .choices = choice.needs_choices()});
  Conversation conversation(*engine, *tokenizer, chat_template, choices, config,
                            {.system = options.system,
                             .context = context,
                             .max_tokens = options.max_tokens,
                             .eos = eos,
                             .choice = options.choice,
                             .sampling = options.sampling,
                             .template_args = std::move(template_args),
                             .adapter = only_adapter(options.engine)});
  if (isatty(STDIN_FILENO) != 0)
    fmt::print(stderr, "{} on {}. /help says what there is, /exit or Ctrl-D leaves.\n",
               folder_name(options.session.model), session.device().name());
  catch_interruption();
  const Sampling sampling = sampling_of(options.sampling, config.generation);
  if (options.stats) fmt::print(stderr, "sampling  {}, seed {}\n", sampling_words(sampling, choice), *sampling.seed);
  return talk(conversation, sampling, options.stats);
}

}  // namespace

void add_chat(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ChatOptions>();
  options->engine.engine.max_batch = 1;
  CLI::App* command = app.add_subcommand("chat", "Talk with a model, a message at a time; /exit ends");
  command->add_option("--system", options->system, "a message of the system before the first line");
  add_template_args(*command, options->template_args);
  command->add_option("-n,--max-tokens", options->max_tokens, "most tokens of an answer")
      ->check(whole_number<uint32_t>)
      ->capture_default_str();
  command->add_flag("--stats", options->stats, "print the times of each answer, and what the cache saved, to stderr");
  add_sampling_options(*command, options->sampling);
  add_choice_flags(*command, options->choice);
  add_session_options(*command, options->session);
  add_parallel_options(*command, options->session);
  add_mode_option(*command, options->session);
  add_engine_options(*command, options->engine);
  add_adapter_options(*command, options->engine, options->session);
  command->callback([options, &chosen] { chosen = [options] { return chat(*options); }; });
}

}  // namespace nodewright::cli
