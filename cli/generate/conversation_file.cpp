#include "cli/generate/conversation_file.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/json_file.h"
#include "cli/output/output_file.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr uint64_t kMostConversationBytes = uint64_t{64} << 20;

[[noreturn]] void refuse_conversation(const fs::path& file, std::string why) {
  throw Error({.doing = "load the conversation",
               .object = file.string(),
               .detail = std::move(why),
               .advice = "a file that /save has written",
               .fault = Fault::usage});
}

}  // namespace

fs::path path_of_person(const std::string& words) {
  const char* home = std::getenv("HOME");
  if (home != nullptr && (words == "~" || words.starts_with("~/"))) return std::string(home) + words.substr(1);
  return words;
}

void save_conversation(const fs::path& file, const std::vector<ChatMessage>& messages) {
  std::error_code unused;
  if (fs::is_directory(file, unused))
    throw Error({.doing = "save the conversation",
                 .object = file.string(),
                 .detail = "it is a folder",
                 .advice = "the name of a file in it",
                 .fault = Fault::usage});
  if (fs::is_regular_file(file, unused)) try {
      (void)load_conversation(file);
    } catch (const Error&) {
      throw Error({.doing = "save the conversation",
                   .object = file.string(),
                   .detail = "the file is there, and holds no conversation",
                   .advice = "another name",
                   .fault = Fault::usage});
    }
  ordered_json list = ordered_json::array();
  for (const auto& [role, content] : messages) list.push_back({{"role", role}, {"content", content}});
  try {
    write_whole_file(
        file,
        ordered_json{{"messages", std::move(list)}}.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } catch (const Error& error) {
    Error::Parts parts = error.parts();
    parts.fault = Fault::usage;
    throw Error(parts);
  }
}

std::vector<ChatMessage> load_conversation(const fs::path& file) {
  nlohmann::json read;
  try {
    read = read_json_object(file, "load the conversation", kMostConversationBytes);
  } catch (const Error& error) {
    refuse_conversation(file, error.parts().detail);
  }
  const auto list = read.find("messages");
  if (list == read.end() || !list->is_array()) refuse_conversation(file, "it has no list of messages");
  std::vector<ChatMessage> messages;
  bool system = false;
  for (const auto& one : *list) {
    const auto text = [&](const char* key) {
      const auto found = one.is_object() ? one.find(key) : one.end();
      if (!one.is_object() || found == one.end() || !found->is_string())
        refuse_conversation(file, fmt::format("message {} has no {} that is a text", messages.size() + 1, key));
      return found->get<std::string>();
    };
    ChatMessage message{text("role"), text("content")};
    const size_t turn = messages.size() - (system ? 1 : 0);
    if (messages.empty() && message.role == "system")
      system = true;
    else if (message.role != (turn % 2 == 0 ? "user" : "assistant"))
      refuse_conversation(file, fmt::format("message {} is of {}, where one of {} is expected", messages.size() + 1,
                                            in_quotes(message.role), turn % 2 == 0 ? "user" : "assistant"));
    messages.push_back(std::move(message));
  }
  if ((messages.size() - (system ? 1 : 0)) % 2 != 0) refuse_conversation(file, "its last message has no answer");
  return messages;
}

}  // namespace nodewright::cli
