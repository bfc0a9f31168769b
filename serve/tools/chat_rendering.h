// The conversation of a request as the prompt that the checkpoint's template makes of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "serve/fields/json_fields.h"
#include "serve/tools/reasoning_text.h"
#include "text/chat/chat_template.h"

namespace nodewright {

struct ChatAsk {
  const RequestJson& messages;
  RequestJson variables;  // of the template: the server's own, and "chat_template_kwargs" over them
  const RequestJson *tools = nullptr, *documents = nullptr;
  std::string template_name = {};  // empty: as transformers chooses
  bool generates = true;           // "add_generation_prompt"
  bool continues = false;          // "continue_final_message"
};

struct RenderedChat {
  ChatPrompt prompt;
  Thought thought = Thought::unknown;  // where the answer begins
};

// Throws std::invalid_argument naming a place of messages that cannot be, before the template runs, or an id that it
// needs; and Error as the template does.
RenderedChat rendered_chat(const ChatTemplates& templates, ChatAsk asked);

}  // namespace nodewright
