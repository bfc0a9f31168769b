// nodewright chat: its options, the engine and the conversation that cli/generate/talk.h leads.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "cli/generate/conversation.h"
#include "cli/generate/talk.h"
#include "cli/interruption.h"
#include "cli/options/adapter_options.h"
#include "cli/options/engine_options.h"
#include "cli/options/folders/checkpoint_config.h"
#include "cli/options/option_pairs.h"
#include "cli/options/request/choice_flags.h"
#include "cli/options/request/row_sampling_words.h"
#include "cli/options/request/sampling_options.h"
#include "cli/options/request/template_args.h"
#include "cli/options/whole_number.h"
#include "cli/output/note.h"
#include "cli/session.h"
#include "runtime/error.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

constexpr int64_t kUsualContext = 4096;  // tokens; the cache of a model's whole context may be larger than its weights
constexpr int64_t kMostPromptRows = 2048;  // of graphs for what a turn adds; a longer prompt takes several steps

struct ChatOptions {
  SessionOptions session;
  EngineSettings engine;
  SamplingOptions sampling;
  ChoiceFlags choice;
  std::optional<std::string> system;
  std::filesystem::path chat_template;  // empty: the checkpoint's
  std::vector<std::string> template_args;
  int64_t max_tokens = 512;
  bool stats = false;
};

int chat(const ChatOptions& options) {
  cli::check(options.sampling);
  check_least(options.choice, options.max_tokens);
  RequestJson template_args = template_args_of(options.template_args);
  check_model_folder(options.session.model);
  const ChatTemplate chat_template = ChatTemplate::from_folder(options.session.model, options.chat_template);
  const std::optional<Tokenizer> tokenizer = Tokenizer::from_folder(options.session.model);
  const ModelConfig config = read_config(options.session.model, tokenizer);
  check_pairs(options.engine, options.session, config.longest_context());
  check_adapters(options.engine, options.session, config);
  const std::vector<int32_t> eos(config.eos.begin(), config.eos.end());
  ChoiceReader choices(config, tokenizer);
  const ChoiceOptions choice = read_choice(choices, options.choice, options.sampling, eos).options;
  stop_ids_of(options.choice, eos, config.vocab);  // faults are reported before anything is loaded
  only_adapter(options.engine);
  tell_ignored(config.generation);

  Session session(options.session, Loading::begun);
  const int64_t context = options.session.max_context > 0 ? options.session.max_context
                                                          : std::min<int64_t>(session.context_limit(), kUsualContext);
  const std::unique_ptr<Engine> engine =
      make_engine(options.engine, options.session, session,
                  {.prompt_tokens = std::min(context, kMostPromptRows),
                   .max_context = context,
                   .choices = choice.needs_choices() || isatty(STDIN_FILENO) != 0});  // a person may set penalties
  ChatSettings settings{options.sampling, options.max_tokens};
  Conversation conversation(*engine, *tokenizer, chat_template, choices, config,
                            {.system = options.system,
                             .context = context,
                             .eos = eos,
                             .choice = options.choice,
                             .settings = settings,
                             .template_args = std::move(template_args),
                             .adapter = only_adapter(options.engine)});
  if (isatty(STDIN_FILENO) != 0)
    note(fmt::format("{} on {}. /help says what there is, /exit or Ctrl-D leaves.\n",
                     folder_name(options.session.model), session.device().name()));
  catch_interruption();
  Talk talk(conversation, settings, config.generation, options.stats);
  if (options.stats)
    fmt::print(stderr, "sampling  {}, seed {}\n", sampling_words(talk.sampling(), choice), *talk.sampling().seed);
  return talk.run();
}

}  // namespace

void add_chat(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ChatOptions>();
  options->engine.engine.max_batch = 1;
  CLI::App* command = app.add_subcommand("chat", "Talk with a model, a message at a time; /exit ends");
  command->add_option("--system", options->system, "a system message before the first line");
  add_chat_template(*command, options->chat_template);
  add_template_args(*command, options->template_args);
  command->add_option("-n,--max-tokens", options->max_tokens, "most tokens of an answer")
      ->check(whole_number<uint32_t, 1>)
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
