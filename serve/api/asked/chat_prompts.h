// The tokens of a conversation, by the checkpoint's chat template.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/api/asked/call_options.h"
#include "text/chat/chat_template.h"

namespace nodewright {

// Immutable: any thread may use it.
class ChatPrompts {
 public:
  // A folder without a template, or with one that cannot be read, makes every tokens_of() an ApiError that says so.
  // `model` must outlive this.
  explicit ChatPrompts(const ServedModel& model);

  struct ChatTokens {
    std::vector<int32_t> tokens;
    std::string text;
  };
  // The tokens and the text of "messages", with "tools", "documents", "chat_template_kwargs" over the server's own,
  // "add_generation_prompt", "continue_final_message" and "add_special_tokens". Throws ApiError 400, also for a text that
  // no context holds unless it may be `of_any_length`.
  ChatTokens tokens_of(const RequestBody& body, bool of_any_length = false) const;

  bool has_template() const { return template_.has_value(); }
  // The template's text; empty where there is none.
  const std::string& source() const { return source_; }

 private:
  ChatPrompt render(const RequestBody& body) const;

  const ServedModel& model_;
  std::optional<ChatTemplate> template_;
  std::string source_, why_none_;
};

}  // namespace nodewright
