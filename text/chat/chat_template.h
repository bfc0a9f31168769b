// A conversation as the text that a model was trained on, by the template that its checkpoint brings:
// chat_template.jinja, or chat_template in tokenizer_config.json. The template writes BOS itself: encode its output
// without adding one.
#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja/run.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatPrompt {
  std::string text;   // valid UTF-8
  std::string plain;  // as long: 1 for each byte that came from a message, where no special token may be found
};

class ChatTemplate {
 public:
  // Reads the template of a checkpoint folder; of several with names the one called "default". Throws Error where there
  // is none, where a file is not what it should be, and for a construct that is not supported (by name, with its line).
  static ChatTemplate from_folder(const std::filesystem::path& folder);

  // What a template prints by name: the special tokens of a checkpoint ("bos_token"), and under
  // "additional_special_tokens" and "extra_special_tokens" the list of those without a name.
  struct Tokens {
    std::map<std::string, std::string> named;
    std::vector<std::string> more;
  };

  // `file` is named in errors.
  ChatTemplate(const std::string& source, std::string file, Tokens tokens);
  ChatTemplate(const std::string& source, std::string file, const std::optional<std::string>& bos_token = std::nullopt,
               const std::optional<std::string>& eos_token = std::nullopt);

  // The prompt that asks for the assistant's next message. Invalid UTF-8 in a message is read as U+FFFD.
  // Throws Error if the template refuses the conversation, with its own words, or does not end.
  ChatPrompt render(const std::vector<ChatMessage>& messages) const;
  // The same with more variables: {"enable_thinking": false, ...}.
  ChatPrompt render(const std::vector<ChatMessage>& messages, const nlohmann::ordered_json& more) const;

  // The same for any variables, as `transformers` passes them to a template: {"messages": [...], "tools": [...],
  // "add_generation_prompt": true, "enable_thinking": false, ...}. `now` is what strftime_now tells.
  ChatPrompt render(const nlohmann::ordered_json& variables, std::time_t now) const;

  // The template itself, by which one sees how its model calls tools.
  const std::string& source() const { return source_; }

 private:
  std::string source_, file_;
  jinja::Body body_;
  Tokens tokens_;
};

// The ids of a prompt: special tokens come from the template only, and nothing is added around it.
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const ChatPrompt& prompt);

}  // namespace nodewright
