#include "cli/generate/chat_command.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "base/nearest_name.h"
#include "cli/generate/chat_settings.h"
#include "cli/generate/conversation_file.h"

namespace nodewright::cli {
namespace {

namespace fs = std::filesystem;

struct NamedWord {
  std::string_view name;
  ChatWord word;
  bool takes_text = false;
};
// The name that /help lists comes first.
constexpr std::array kWords = {NamedWord{"/help", ChatWord::help},
                               NamedWord{"/?", ChatWord::help},
                               NamedWord{"/clear", ChatWord::clear},
                               NamedWord{"/reset", ChatWord::clear},
                               NamedWord{"/stats", ChatWord::stats},
                               NamedWord{"/exit", ChatWord::leave},
                               NamedWord{"/bye", ChatWord::leave},
                               NamedWord{"/quit", ChatWord::leave},
                               NamedWord{"/save", ChatWord::save, true},
                               NamedWord{"/load", ChatWord::load, true},
                               NamedWord{"/system", ChatWord::system, true},
                               NamedWord{"/set", ChatWord::set, true},
                               NamedWord{"/regenerate", ChatWord::regenerate}};

constexpr std::string_view kHelp =
    "/clear          forget what was said; /reset is the same\n"
    "/regenerate     another answer to the last message\n"
    "/save FILE      write the conversation, as JSON\n"
    "/load FILE      go on with one that was saved\n"
    "/system TEXT    the system message from now on; \"\": none; without TEXT show it\n"
    "/set NAME VALUE temperature, top_k, top_p, max_tokens ...; VALUE default: the checkpoint's; /set alone lists all\n"
    "/stats          the times of the last answer, and how much the cache has saved\n"
    "/help           these lines\n"
    "/exit           leave; /bye and Ctrl-D are the same\n"
    "//stats         a text that begins with a slash and a word is sent with a second slash, or a space, before it\n"
    "Ctrl-C ends an answer. At the prompt it takes back what was typed; a second one leaves.\n"
    "A pasted text is one message. Alt-Enter begins a new line, and so does \\ at the end of one; lines between two\n"
    "of \"\"\" are one message.\n";

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n");
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin, end + 1 - begin));
}

// A slash and letters, with the signs that names of options have; "/?" and a slash alone, too.
bool is_name(const std::string& word) {
  return word == "/?" || (word.starts_with('/') && std::all_of(word.begin() + 1, word.end(), [](unsigned char c) {
                            return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_');
                          }));
}

std::string in_small_letters(std::string word) {
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

std::vector<std::string> beginning_with(const std::string& word, std::vector<std::string> all) {
  std::erase_if(all, [&](const std::string& one) { return !one.starts_with(word); });
  std::ranges::sort(all);
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const NamedWord& one : kWords) all.emplace_back(one.name);
  return all;
}

std::vector<std::string> files_like(const std::string& word) {
  const size_t slash = word.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : word.substr(0, slash + 1);
  const std::string name = word.substr(folder.size());
  std::vector<std::string> all;
  std::error_code failed;
  for (fs::directory_iterator at(folder.empty() ? fs::path(".") : path_of_person(folder), failed), end;
       !failed && at != end; at.increment(failed)) {
    const std::string found = at->path().filename().string();
    if (name.empty() && found.starts_with('.')) continue;
    std::error_code unused;
    all.push_back(folder + found + (at->is_directory(unused) ? "/" : ""));
  }
  return beginning_with(word, std::move(all));
}

}  // namespace

ChatCommand chat_command(const std::string& message) {
  const size_t end = std::min(message.find_first_of(" \t\n"), message.size());
  const bool is_escaped = message.starts_with("//");
  const std::string first = message.substr(is_escaped ? 1 : 0, is_escaped ? end - 1 : end);
  if (!is_name(first) || (first == "/" && end < message.size())) return {ChatWord::none, "", message};
  if (is_escaped) return {ChatWord::none, "", message.substr(1)};
  ChatCommand command{ChatWord::unknown, in_small_letters(first), trimmed(message.substr(end))};
  const auto known = std::ranges::find(kWords, std::string_view(command.name), &NamedWord::name);
  const bool takes_text = known != kWords.end() && known->takes_text;
  if (!takes_text && message.find('\n') != std::string::npos) return {ChatWord::none, "", message};
  if (known != kWords.end()) command.word = takes_text || command.rest.empty() ? known->word : ChatWord::surplus;
  return command;
}

std::string nearest_chat_command(const std::string& name) { return nearest_name(name, names()); }

std::vector<std::string> chat_completions(const std::string& before) {
  if (!before.starts_with('/')) return {};
  const size_t space = before.find(' ');
  if (space == std::string::npos) return beginning_with(before, names());
  const std::string command = before.substr(0, space), word = before.substr(before.rfind(' ') + 1);
  if (command == "/set" && before.rfind(' ') == space) return beginning_with(word, chat_setting_names());
  if (command == "/save" || command == "/load") return files_like(word);
  return {};
}

std::string_view chat_help() { return kHelp; }

}  // namespace nodewright::cli
