// A conversation as a file: {"messages": [{"role": "user", "content": "..."}, ...]}, which is also the body of a
// request to the HTTP interface.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/chat/chat_template.h"

namespace nodewright::cli {

// "~/talk.json" is a file of the home folder.
std::filesystem::path path_of_person(const std::string& words);

// Throws Error (usage) where the file exists and is no conversation, or cannot be written.
void save_conversation(const std::filesystem::path& file, const std::vector<ChatMessage>& messages);

// Perhaps a message of the system, then messages of user and assistant in turn. Throws Error (usage) for anything else.
std::vector<ChatMessage> load_conversation(const std::filesystem::path& file);

}  // namespace nodewright::cli
