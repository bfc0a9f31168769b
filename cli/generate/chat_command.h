// The commands of a conversation: /help, /save FILE and the others, and what Tab makes of their beginnings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nodewright::cli {

enum class ChatWord { none, unknown, help, clear, stats, leave, save, load, system, set, regenerate };

struct ChatCommand {
  ChatWord word = ChatWord::none;  // none: it is a message
  std::string name;                // "/save"
  std::string rest;                // behind the name, without spaces around it
};

// A message may begin with a path, "/tmp is full": one that has a word behind its first is a command only where that is
// the name of one.
ChatCommand chat_command(const std::string& message);

// The command that somebody meant, "/save"; empty where none is near.
std::string nearest_chat_command(const std::string& name);

// What the last word of such a beginning of a line may become: names of commands, settings, files.
std::vector<std::string> chat_completions(const std::string& before);

// The lines of /help.
std::string_view chat_help();

}  // namespace nodewright::cli
