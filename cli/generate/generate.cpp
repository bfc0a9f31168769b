// nodewright generate: streams the continuation of a prompt, or with --chat the answer to it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string_view>

#include "cli/command.h"
#include "cli/generate/one_request.h"
#include "cli/generate/several_steps.h"
#include "cli/interruption.h"
#include "cli/options/adapter_options.h"
#include "cli/options/engine_options.h"
#include "cli/options/folders/checkpoint_config.h"
#include "cli/options/option_pairs.h"
#include "cli/options/refusals.h"
#include "cli/options/request/choice_flags.h"
#include "cli/options/request/prompt_options.h"
#include "cli/options/request/row_sampling_words.h"
#include "cli/options/request/sampling_options.h"
#include "cli/options/request/template_args.h"
#include "cli/options/whole_number.h"
#include "cli/output/say.h"
#include "cli/output/standard_output.h"
#include "cli/session.h"
#include "engine/byte_size.h"
#include "engine/engine_report.h"
#include "runtime/error.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

struct GenerateOptions {
  SessionOptions session;
  EngineSettings engine;
  SamplingOptions sampling;
  ChoiceFlags choice;
  PromptOptions prompt;
  std::optional<std::string> system;
  std::filesystem::path chat_template;  // empty: the checkpoint's
  std::vector<std::string> template_args;
  int64_t max_tokens = 128;
  bool chat = false, ignore_eos = false, stats = false;
};

using Clock = std::chrono::steady_clock;

bool takes_several(const GenerateOptions& options) {
  return options.session.steps.most != 1 || options.session.steps.loop;
}

void check(const GenerateOptions& options) {
  cli::check(options.prompt);
  if (options.chat && options.prompt.ids) refuse_option("--chat", "it needs --prompt TEXT or --prompt-file FILE");
  if (options.system && !options.chat) refuse_option("--system", "it needs --chat");
  if (!options.template_args.empty() && !options.chat) refuse_option("--template-arg", "it needs --chat");
  if (!options.chat_template.empty() && !options.chat) refuse_option("--chat-template", "it needs --chat");
  template_args_of(options.template_args);
  cli::check(options.sampling);
  check_least(options.choice, options.max_tokens);
  check_steps(options.session);
}

// A text as one message of a user, by the checkpoint's template, which writes BOS itself.
std::vector<TokenId> chat_prompt(const Tokenizer& tokenizer, const GenerateOptions& options, const std::string& text) {
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", text});
  return encode_prompt(tokenizer, ChatTemplate::from_folder(options.session.model, options.chat_template)
                                      .render(messages, template_args_of(options.template_args)));
}

// Whether the checkpoint's template puts something behind a message, for an answer to begin.
bool is_made_for_chats(const std::filesystem::path& folder) {
  constexpr std::string_view kMessage = "Hello";
  try {
    const std::string prompt = ChatTemplate::from_folder(folder).render({{"user", std::string(kMessage)}}).text;
    return !prompt.substr(0, prompt.find_last_not_of(" \n") + 1).ends_with(kMessage);
  } catch (const Error&) {
    return false;  // there is none, or none that can be used: nothing to say of a text that needs none
  }
}

// Prints tokens as text where there is a tokenizer, else as ids separated by commas; the prompt not before the first
// token, so that a model that fails leaves nothing behind.
class Printer {
 public:
  Printer(std::string prompt, const std::optional<Tokenizer>& tokenizer, std::shared_ptr<StopStrings> stops)
      : prompt_(std::move(prompt)) {
    if (tokenizer) text_.emplace(*tokenizer, std::move(stops));
  }
  void token(int32_t id) {
    const std::string of_token = text_ ? text_->push(id) : (ids_++ == 0 ? "" : ",") + std::to_string(id);
    write_standard_output(std::exchange(prompt_, {}) + of_token);
  }
  void end() { write_standard_output(std::exchange(prompt_, {}) + (text_ ? text_->finish() : "") + "\n"); }

 private:
  std::string prompt_;
  std::optional<AnswerText> text_;
  int64_t ids_ = 0;
};

int generate(const GenerateOptions& options) {
  check(options);
  check_model_folder(options.session.model);
  std::optional<Tokenizer> tokenizer;
  std::vector<int32_t> prompt;
  std::string text;
  Clock::duration encoding{};
  if (options.prompt.ids) {
    prompt = parse_ids("--prompt-ids", *options.prompt.ids);
  } else {
    text = prompt_text(options.prompt);
    if (!options.chat && is_made_for_chats(options.session.model))
      fmt::print(stderr,
                 "nodewright: the prompt is continued as raw text; --chat answers it by the model's chat template\n");
    tokenizer = Tokenizer::from_folder(options.session.model);
    const auto start = Clock::now();
    prompt =
        options.chat ? chat_prompt(*tokenizer, options, text) : tokenizer->encode(text, {.add_special_tokens = true});
    encoding = Clock::now() - start;
  }
  if (prompt.empty())
    throw Error({.doing = "generate from",
                 .object = "--prompt",
                 .detail = text.empty() ? "it is empty, and this tokenizer adds no token that begins a text"
                                        : "it has no tokens",
                 .fault = Fault::usage});

  const ModelConfig config = tokenizer || options.ignore_eos ? read_config(options.session.model, tokenizer)
                                                             : read_config_of_ids(options.session.model);
  check_pairs(options.engine, options.session, config.longest_context());
  check_adapters(options.engine, options.session, config);
  const std::vector<int32_t> eos =
      options.ignore_eos ? std::vector<int32_t>{} : std::vector<int32_t>(config.eos.begin(), config.eos.end());
  RequestSpec spec{.prompt = std::move(prompt),
                   .max_tokens = options.max_tokens,
                   .stop_ids = stop_ids_of(options.choice, eos, config.vocab),
                   .adapter = only_adapter(options.engine)};
  ChoiceReader choices(config, tokenizer);
  RequestChoice choice = read_choice(choices, options.choice, options.sampling, eos);
  const Sampling sampling = sampling_of(options.sampling, config.generation);
  if (takes_several(options)) check_several_steps(options.engine, choice.options);
  tell_ignored(config.generation);

  Session session(options.session, Loading::begun);
  // A text may end at the last position there is; a prompt must leave room for one token.
  const auto prompt_tokens = static_cast<int64_t>(spec.prompt.size());
  session.check_fits(prompt_tokens + 1);
  const int64_t context = options.session.max_context > 0
                              ? options.session.max_context
                              : std::min(session.context_limit(), prompt_tokens + options.max_tokens);
  Printer printer(options.chat ? "" : text, tokenizer, choice.stops);
  const auto token = [&printer](int32_t id) { printer.token(id); };
  const auto report = [&](const RequestOutcome& outcome, const std::string& of_start) {
    printer.end();
    if (!options.stats) return;
    RequestOutcome told = outcome;
    told.first_s += std::chrono::duration<double>(encoding).count();
    say("load      {:.0f} ms, {} of weights\ntuning    {}\nsampling  {}, seed {}\n{}{}", session.model().upload_ms(),
        byte_size_text(session.model().weights().bytes()), session.tuning_words(),
        sampling_words(sampling, choice.options), *sampling.seed, of_start, outcome_report(told));
  };
  if (takes_several(options)) {
    DirectStepsOptions one = session.direct_steps(context);
    one.prefill_rows = rows_of_one_prompt(session, prompt_tokens);
    DirectSteps steps(session.places().front(), one);
    catch_interruption();
    report(generate_several(steps, spec, sampling, token), several_report(steps));
    return cli::interrupted() ? interruption_exit_code() : 0;
  }
  const std::unique_ptr<Engine> engine = make_engine(options.engine, options.session, session,
                                                     {.prompt_tokens = prompt_tokens,
                                                      .one_prompt = true,
                                                      .max_context = context,
                                                      .choices = choice.options.needs_choices()});
  catch_interruption();
  report(serve_one(*engine, std::move(spec), sampling, choice.options, token, cli::interrupted),
         start_report(engine->slots().built(), engine->slots().memory()));
  return cli::interrupted() ? interruption_exit_code() : 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<GenerateOptions>();
  options->engine.engine.max_batch = 1;
  CLI::App* command = app.add_subcommand("generate", "Continue a text");
  add_prompt_options(*command, options->prompt);
  command->add_option("-n,--max-tokens", options->max_tokens, "most tokens to generate")
      ->check(whole_number<uint32_t, 1>)
      ->capture_default_str();
  command->add_flag("--chat", options->chat,
                    "the prompt is a message; print the answer (the checkpoint's chat template)");
  command->add_option("--system", options->system, "with --chat: a system message before it");
  add_chat_template(*command, options->chat_template);
  add_template_args(*command, options->template_args);
  command->add_flag("--ignore-eos", options->ignore_eos, "go on after an end-of-text token");
  command->add_flag("--stats", options->stats, "print times, sizes and why the text ended to stderr");
  add_sampling_options(*command, options->sampling);
  add_choice_flags(*command, options->choice);
  add_session_options(*command, options->session);
  add_parallel_options(*command, options->session);
  add_mode_option(*command, options->session);
  add_engine_options(*command, options->engine);
  add_adapter_options(*command, options->engine, options->session);
  add_steps_options(*command, options->session);
  command->callback([options, &chosen] { chosen = [options] { return generate(*options); }; });
}

}  // namespace nodewright::cli
