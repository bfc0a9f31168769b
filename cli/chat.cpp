// nodewright chat: a conversation, line by line. /exit, the end of the input and Ctrl-C end it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>

#include "cli/command.h"
#include "cli/sampling_options.h"
#include "cli/session.h"
#include "cli/standard_output.h"
#include "cli/whole_number.h"
#include "engine/chat_template.h"
#include "engine/text_stream.h"
#include "engine/tokenizer.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

constexpr int64_t kUsualContext = 4096;  // tokens; the cache of a model's whole context may be larger than its weights

struct ChatOptions {
  SessionOptions session;
  SamplingOptions sampling;
  std::optional<std::string> system;
  int64_t max_tokens = 512;
};

volatile std::sig_atomic_t interrupted = 0;

// The first Ctrl-C ends the conversation, also while it waits for a line; a second one ends the program at once.
void end_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = SA_RESETHAND;  // and no SA_RESTART: reading a line fails
  sigaction(SIGINT, &action, nullptr);
}

// The sequence of a conversation in the cache. What a turn has in common with the turns before it is not computed
// again.
class Conversation {
 public:
  Conversation(Decoder& decoder, const Tokenizer& tokenizer, const std::vector<int64_t>& eos, int64_t context)
      : decoder_(decoder), tokenizer_(tokenizer), eos_(eos), context_(context), sequence_(decoder.open()) {}

  // Streams the answer to `prompt` to standard output and returns it.
  std::string answer(const std::vector<int32_t>& prompt, const Sampling& sampling, int64_t max_tokens) {
    if (static_cast<int64_t>(prompt.size()) >= context_)
      throw Error({.doing = "continue the conversation",
                   .detail = fmt::format("it has {} tokens, {} fit, and an answer needs room", prompt.size(), context_),
                   .advice = "start anew, or with a larger --max-context",
                   .fault = Fault::usage});
    feed(prompt);
    TextStream stream(tokenizer_);
    std::string text;
    const auto print = [&](const std::string& part) {
      text += part;
      write_standard_output(part);
    };
    StepRow row{.sequence = sequence_, .token = prompt.back(), .sampling = sampling};
    const int64_t room = context_ - static_cast<int64_t>(prompt.size());
    for (int64_t count = 0; count < std::min(max_tokens, room) && !interrupted; ++count) {
      const int32_t token = decoder_.step({row})[0];
      cached_.push_back(row.token.value_or(last_));
      row.token.reset();  // from now on the device feeds itself
      last_ = token;
      if (std::find(eos_.begin(), eos_.end(), token) != eos_.end()) break;
      print(stream.push(token));
    }
    print(stream.flush());
    return text;
  }

 private:
  // Brings all of the prompt but its last token into the cache.
  void feed(const std::vector<int32_t>& prompt) {
    const auto end = std::mismatch(cached_.begin(), cached_.end(), prompt.begin(), prompt.end() - 1).first;
    if (end != cached_.end()) {  // the template writes earlier turns in another way now
      decoder_.close(sequence_);
      sequence_ = decoder_.open();
      cached_.clear();
    }
    const auto rest = std::span(prompt).first(prompt.size() - 1).subspan(cached_.size());
    decoder_.append(sequence_, rest);
    cached_.insert(cached_.end(), rest.begin(), rest.end());
  }

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  const std::vector<int64_t>& eos_;
  int64_t context_;
  int32_t sequence_;
  int32_t last_ = 0;             // the token of the step before
  std::vector<int32_t> cached_;  // tokens of the sequence
};

// The next line that says something, or nothing at the end.
std::optional<std::string> read_message(bool terminal) {
  for (std::string line; !interrupted;) {
    if (terminal) write_standard_output("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.ends_with('\r')) line.pop_back();
    if (line == "/exit") return std::nullopt;
    if (line.find_first_not_of(" \t") != std::string::npos) return line;
  }
  if (terminal) write_standard_output("\n");  // behind the ^D or ^C
  return std::nullopt;
}

int chat(const ChatOptions& options) {
  if (options.max_tokens < 1)
    throw Error({.doing = "use",
                 .object = "--max-tokens",
                 .detail = fmt::format("{} is less than 1", options.max_tokens),
                 .fault = Fault::usage});
  check(options.sampling);
  check_model_folder(options.session.model);
  const ChatTemplate chat_template = ChatTemplate::from_folder(options.session.model);
  const Tokenizer tokenizer = Tokenizer::from_file(options.session.model / "tokenizer.json");
  Session session(options.session, Loading::begun);
  const int64_t context = options.session.max_context > 0 ? options.session.max_context
                                                          : std::min<int64_t>(session.context_limit(), kUsualContext);
  const auto decoder = session.make_decoder(context, 1);
  Conversation conversation(*decoder, tokenizer, session.config().eos, context);
  Sampling sampling = sampling_of(options.sampling, session.config().generation);

  end_on_interrupt();
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  const bool terminal = isatty(STDIN_FILENO) != 0;
  while (const auto message = read_message(terminal)) {
    messages.push_back({"user", *message});
    const std::vector<TokenId> prompt = encode_prompt(tokenizer, chat_template.render(messages));
    if (prompt.empty())
      throw Error({.doing = "answer", .object = *message, .detail = "the chat template makes no tokens of it"});
    messages.push_back({"assistant", conversation.answer(prompt, sampling, options.max_tokens)});
    write_standard_output("\n");
    ++sampling.seed;  // or each turn would draw the same numbers
  }
  return 0;
}

}  // namespace

void add_chat(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model, a line at a time; /exit ends");
  add_session_options(*command, options->session);
  add_mode_option(*command, options->session);
  add_bucket_option(*command, options->session);
  command->add_option("--system", options->system, "a message of the system before the first line");
  command->add_option("--max-tokens", options->max_tokens, "most tokens of an answer")
      ->check(whole_number<uint32_t>)
      ->capture_default_str();
  add_sampling_options(*command, options->sampling);
  command->callback([options, &chosen] { chosen = [options] { return chat(*options); }; });
}

}  // namespace nodewright::cli
