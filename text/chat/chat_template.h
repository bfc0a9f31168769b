// A conversation as the text that a model was trained on, by the template that its checkpoint brings:
// chat_template.jinja, or chat_template in tokenizer_config.json. The template writes BOS itself: encode its output
// without adding one.
#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/error.h"
#include "text/chat/template_shape.h"
#include "text/jinja/run.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// A chat template is no text: a damaged file, or none of a template.
class TemplateBytesError : public Error {
 public:
  using Error::Error;
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatPrompt {
  std::string text;   // valid UTF-8
  std::string plain;  // as long: 1 for each byte that came from a message, where no special token may be found
};

// A prompt that ends within its last message.
struct OpenPrompt {
  ChatPrompt prompt;
  size_t begin = 0;  // of what the message says
};

class ChatTemplate {
 public:
  // Reads the template of a checkpoint folder; of several with names the one called "default" (see ChatTemplates, also
  // for `instead`).
  // Throws Error where there is none, where a file is not what it should be, and for a construct that is not supported
  // (by name, with its line).
  static ChatTemplate from_folder(const std::filesystem::path& folder, const std::filesystem::path& instead = {});

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

  // The same up to the end of what the last message says, for an answer that continues it. Throws Error where the
  // template does not print it.
  OpenPrompt render_open(nlohmann::ordered_json variables, std::time_t now) const;

  // How it reads a conversation. Found at the first call.
  const TemplateShape& shape() const;

 private:
  // `marks_last`: as kContinued what the last message says.
  jinja::Text rendered(const nlohmann::ordered_json& variables, std::time_t now, bool marks_last) const;

  struct Found {
    std::once_flag once;
    TemplateShape shape;
  };

  std::string file_;
  jinja::Body body_;
  Tokens tokens_;
  std::shared_ptr<Found> found_ = std::make_shared<Found>();
};

// The templates of a checkpoint folder by their names. Immutable.
class ChatTemplates {
 public:
  // Reads chat_template.jinja as "default" and additional_chat_templates/NAME.jinja or, where there are none of these,
  // chat_template in tokenizer_config.json: one text, or a list of {"name", "template"}. Throws as
  // ChatTemplate::from_folder. `instead`: a file with the one template, in place of all that the folder has; the
  // special tokens are those of the folder. Empty: the folder's.
  static ChatTemplates from_folder(const std::filesystem::path& folder, const std::filesystem::path& instead = {});

  // The one of that name. With none: "tool_use" where there are tools, if it is there, else "default". Throws Error
  // where there is no such template.
  const ChatTemplate& chosen(bool has_tools, const std::string& name = {}) const;
  bool has(const std::string& name) const { return templates_.contains(name); }
  // For errors: "default, rag".
  std::string names() const;

 private:
  friend class ChatTemplate;

  std::map<std::string, ChatTemplate> templates_;
  std::filesystem::path place_;  // for errors: the file of all, or the folder of their files
};

// The ids of a prompt: special tokens come from the template only, and nothing is added around it.
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const ChatPrompt& prompt);

}  // namespace nodewright
