#include "cli/generate/talk.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_file.h"
#include "cli/generate/conversation_file.h"
#include "cli/generate/typed_history.h"
#include "cli/interruption.h"
#include "cli/output/note.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

bool terminated() { return cli::interrupted() && interruption_exit_code() != 128 + SIGINT; }

std::string turns_words(size_t turns) { return fmt::format("{} turn{}", turns, turns == 1 ? "" : "s"); }

void tell_left_out(size_t turns, const std::string& first, int64_t context) {
  constexpr size_t kShown = 40;  // bytes
  std::string beginning = first.substr(0, kShown);
  std::ranges::replace(beginning, '\n', ' ');
  note(fmt::format("nodewright: the context of {} tokens is full: {} left out, from \"{}{}\" on\n", context,
                   turns == 1 ? "the oldest turn is" : fmt::format("the oldest {} turns are", turns), beginning,
                   first.size() > kShown ? "..." : ""));
}

}  // namespace

Talk::Talk(Conversation& conversation, ChatSettings& settings, const GenerationDefaults& defaults, bool stats)
    : conversation_(conversation),
      settings_(settings),
      defaults_(defaults),
      stats_(stats),
      usual_tokens_(settings.max_tokens),
      sampling_(sampling_of(settings.sampling, defaults)),
      editor_({.history = typed_history_file(), .completions = chat_completions}) {}

int Talk::run() {
  int exit_code = 0;
  bool may_leave = false;  // the last key was a Ctrl-C at the prompt
  for (;;) {
    const ReadLine message = read_message();
    if (message.end == ReadLine::End::ended) break;
    if (message.end == ReadLine::End::interrupted && std::exchange(may_leave, true)) return exit_code;
    if (message.end == ReadLine::End::interrupted) note("(another Ctrl-C leaves; so do /exit and Ctrl-D)\n");
    if (message.end == ReadLine::End::cleared) may_leave = true;
    if (!message.entered()) continue;
    may_leave = false;
    if (message.text.find_first_not_of(" \t\n") == std::string::npos) continue;
    const ChatCommand command = message.is_quoted ? ChatCommand{.rest = message.text} : chat_command(message.text);
    if (command.word == ChatWord::leave) return exit_code;
    try {
      if (command.word == ChatWord::none)
        answer(command.rest);
      else
        obey(command);
    } catch (const Error& error) {
      if (error.parts().fault != Fault::usage) throw;
      note(fmt::format("nodewright: {}\n", error.what()));
      if (command.word == ChatWord::none || !editor_.is_terminal()) exit_code = 1;
    }
    if (terminated()) return interruption_exit_code();
    if (cli::interrupted()) forget_interruption();
  }
  if (editor_.is_terminal()) fmt::print(stderr, "\n");  // behind the ^D
  return terminated() ? interruption_exit_code() : exit_code;
}

ReadLine Talk::read_message() {
  constexpr std::string_view kQuotes = "\"\"\"";
  ReadLine message = editor_.read("> ");
  if (!message.entered() || message.is_whole()) return message;
  const bool quoted = message.text == kQuotes;
  if (quoted) message.text.clear(), message.is_quoted = true;
  for (bool first = true; quoted || message.text.ends_with('\\'); first = false) {
    if (!quoted) message.text.pop_back();
    ReadLine line = editor_.read("... ");
    if (line.end == ReadLine::End::cleared || line.end == ReadLine::End::interrupted)
      return {ReadLine::End::cleared, ""};
    if (!line.entered()) return quoted || !message.text.empty() ? message : line;
    if (quoted && line.text == kQuotes) break;
    message.text += (quoted && first ? "" : "\n") + line.text;
    if (!quoted && line.is_whole()) break;
  }
  return message;
}

void Talk::obey(const ChatCommand& command) {
  switch (command.word) {
    case ChatWord::help:
      return note(chat_help());
    case ChatWord::clear:
      conversation_.reset();
      return confirm("the conversation begins anew");
    case ChatWord::stats:
      return print_totals();
    case ChatWord::save:
      return save(command.rest);
    case ChatWord::load:
      return load(command.rest);
    case ChatWord::system:
      return set_system(command.rest);
    case ChatWord::set:
      return set(command.rest);
    case ChatWord::regenerate:
      return regenerate();
    default:
      return refuse(command);
  }
}

void Talk::refuse(const ChatCommand& command) {
  const bool is_known = command.word == ChatWord::surplus;
  const std::string near = is_known ? command.name : nearest_chat_command(command.name);
  throw Error({.doing = "use " + command.name,
               .detail = is_known ? fmt::format("it takes no words, and {} stands after it", in_quotes(command.rest))
                                  : "there is no such command, and the line was not sent to the model",
               .advice = fmt::format("{}, or /{} to send it as a text",
                                     near.empty() ? "/help, which lists the commands" : near, command.name),
               .fault = Fault::usage});
}

void Talk::answer(const std::string& message) {
  const auto left_out = [this](size_t turns, const std::string& first) {
    tell_left_out(turns, first, conversation_.context());
  };
  const LineEditor::QuietKeys quiet(editor_);
  const RequestOutcome outcome = conversation_.answer(message, sampling_, cli::interrupted, left_out);
  if (!conversation_.is_last_answered())
    confirm("(interrupted before the answer began: the message counts as not said)");
  ++totals_.answers;
  totals_.prompt_tokens += outcome.prompt_tokens;
  totals_.found_tokens += outcome.found_tokens;
  totals_.tokens += outcome.tokens;
  totals_.last = outcome;
  if (stats_) note(outcome_report(outcome));
  ++*sampling_.seed;  // or each turn would draw the same numbers
}

void Talk::regenerate() {
  std::vector<ChatMessage> before = conversation_.messages();
  const std::optional<std::string> message = conversation_.take_back();
  if (!message) throw Error({.doing = "regenerate", .detail = "nothing was answered yet", .fault = Fault::usage});
  try {
    answer(*message);
  } catch (const Error&) {
    conversation_.replace(std::move(before));
    throw;
  }
}

void Talk::save(const std::string& file) {
  if (file.empty()) throw Error({.doing = "save", .detail = "/save needs the name of a file", .fault = Fault::usage});
  save_conversation(path_of_person(file), conversation_.messages());
  note(fmt::format("saved {} in {}\n", turns_words(conversation_.turns()), file));
}

void Talk::load(const std::string& file) {
  if (file.empty()) throw Error({.doing = "load", .detail = "/load needs the name of a file", .fault = Fault::usage});
  conversation_.replace(load_conversation(path_of_person(file)));
  note(fmt::format("loaded {} from {}\n", turns_words(conversation_.turns()), file));
}

void Talk::set(const std::string& words) {
  if (words.empty()) return note(settings_words(settings_, defaults_));
  const size_t end = words.find_first_of(" \t=");
  const size_t value = words.find_first_not_of(" \t=", std::min(end, words.size()));
  if (value == std::string::npos)
    throw Error({.doing = "set " + words.substr(0, end),
                 .detail = "there is no value",
                 .advice = "/set temperature 0.7",
                 .fault = Fault::usage});
  set_by_name(settings_, words.substr(0, end), words.substr(value), usual_tokens_);
  const std::optional<uint64_t> seed = settings_.sampling.seed ? settings_.sampling.seed : sampling_.seed;
  sampling_ = sampling_of(settings_.sampling, defaults_);
  sampling_.seed = seed;
  confirm("set, for the answers from now on");
}

void Talk::set_system(const std::string& text) {
  if (text.empty()) return note(fmt::format("{}\n", conversation_.system().value_or("there is no system message")));
  const bool none = text == "\"\"";
  conversation_.set_system(none ? std::nullopt : std::optional<std::string>(text));
  confirm(none ? "removed" : "set, for the answers from now on");
}

void Talk::confirm(std::string_view words) const {
  if (editor_.is_terminal()) note(std::string(words) + "\n");
}

void Talk::print_totals() const {
  if (totals_.answers == 0) return note("no answer yet\n");
  note(outcome_report(totals_.last));
  note(fmt::format("all       {} answer{} of {} tokens; {} of {} prompt tokens came from the cache\n", totals_.answers,
                   totals_.answers == 1 ? "" : "s", totals_.tokens, totals_.found_tokens, totals_.prompt_tokens));
  note(fmt::format("context   {} of {} tokens, {}\n", totals_.last.prompt_tokens + totals_.last.tokens,
                   conversation_.context(), turns_words(conversation_.turns())));
}

}  // namespace nodewright::cli
