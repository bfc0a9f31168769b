// The tokens of a conversation, by the checkpoint's chat template.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/api/asked/call_options.h"
#include "serve/tools/chat_rendering.h"
#include "text/chat/chat_template.h"

namespace nodewright {

// Immutable: any thread may use it.
class ChatPrompts {
 public:
  // A folder without a template, or with one that cannot be followed, makes every tokens_of() an ApiError that says so.
  // Throws Error where the template is no text. `model` must outlive this.
  explicit ChatPrompts(const ServedModel& model);

  struct ChatTokens {
    std::vector<int32_t> tokens;
    Thought thought;  // where the answer begins
  };
  // The tokens of "messages", with "tools", "documents", "chat_template_kwargs" over the server's own,
  // "add_generation_prompt", "continue_final_message", "add_special_tokens", and "chat_template" for the name of one.
  // Throws ApiError 400, also for a text that no context holds unless it may be `of_any_length`.
  ChatTokens tokens_of(const RequestBody& body, bool of_any_length = false) const;

  bool has_template() const { return templates_.has_value(); }
  // How the template for this call reads it; null where there is none.
  const TemplateShape* shape(const RequestBody& body) const;

 private:
  RenderedChat render(const RequestBody& body) const;
  std::string template_name(const RequestBody& body) const;

  const ServedModel& model_;
  std::optional<ChatTemplates> templates_;
  std::string why_none_;
};

}  // namespace nodewright
