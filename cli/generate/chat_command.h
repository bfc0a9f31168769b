// The commands of a conversation: /help, /save FILE and the others, and what Tab makes of their beginnings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nodewright::cli {

enum class ChatWord { none, unknown, surplus, help, clear, stats, leave, save, load, system, set, regenerate };

struct ChatCommand {
  ChatWord word = ChatWord::none;  // none: it is a message. surplus: a command that takes no words, and has some
  std::string name;                // "/save", in small letters
  std::string rest;                // after the name, without spaces around it; of a message its text
};

// A slash and a word, up to a space, is the name of a command, known or not, in large or small letters; a path as
// "/tmp/x" is none. A second slash before such a word makes a message of it, which has one slash: "//stats". A text of
// several lines is a command only where it begins with one that takes a text.
ChatCommand chat_command(const std::string& message);

// The command that somebody meant, "/save"; empty where none is near.
std::string nearest_chat_command(const std::string& name);

// What the last word of such a beginning of a line may become: names of commands, settings, files.
std::vector<std::string> chat_completions(const std::string& before);

// The lines of /help.
std::string_view chat_help();

}  // namespace nodewright::cli
