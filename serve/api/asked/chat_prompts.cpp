#include "serve/api/asked/chat_prompts.h"

#include <fmt/format.h>

#include <ctime>

#include "runtime/error.h"
#include "serve/tools/opened_arguments.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_messages(const std::string& why) { throw bad_request(why, "messages"); }

std::string text_of_part(const RequestJson& part) {
  if (part.is_string()) return part.get<std::string>();
  const RequestJson type = part.is_object() ? part.value("type", RequestJson()) : RequestJson();
  if (type != "text" && type != "input_text" && type != "output_text")
    refuse_messages(fmt::format("messages holds a part of type {}, and text is the only one supported", shown(type)));
  const RequestJson text = part.value("text", RequestJson());
  if (!text.is_string())
    refuse_messages(fmt::format("messages holds a part with the text {}, expected a string", shown(text)));
  return text.get<std::string>();
}

// A string, or the parts that OpenAI's clients send, joined as vLLM does.
std::string text_of_content(const RequestJson& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    refuse_messages(fmt::format("messages holds the content {}, expected a string or a list of parts", shown(content)));
  std::string text;
  for (const RequestJson& part : content) text += (&part == &content.front() ? "" : "\n") + text_of_part(part);
  return text;
}

RequestJson checked_conversation(const RequestBody& body, bool knows_developer) {
  const RequestJson* asked = body.array("messages");
  if (asked == nullptr) refuse_messages("messages is missing");
  if (asked->empty()) refuse_messages("messages is [], expected at least one message");
  RequestJson messages = *asked;
  for (RequestJson& message : messages) {
    if (!message.is_object()) refuse_messages(fmt::format("messages holds {}, expected objects", shown(message)));
    const RequestJson role = message.value("role", RequestJson());
    if (!role.is_string()) refuse_messages(fmt::format("messages holds the role {}, expected a string", shown(role)));
    if (role == "developer" && !knows_developer)
      message["role"] = "system";  // its newer name, which few templates know
    const bool calls_tools = message.contains("tool_calls") && !message["tool_calls"].is_null();
    if (calls_tools)
      refusing(body, "messages", [&] { open_arguments(message["tool_calls"]); });
    else
      message.erase("tool_calls");
    const RequestJson content = message.value("content", RequestJson());
    message["content"] = content.is_null() && role == "assistant" ? std::string() : text_of_content(content);
  }
  return messages;
}

// The prompt up to the end of what its last message says, as transformers cuts it.
void leave_open(ChatPrompt& prompt, const std::string& last) {
  const size_t begin = last.find_first_not_of(" \t\r\n"), end = last.find_last_not_of(" \t\r\n");
  if (begin == std::string::npos) refuse_messages("messages ends with an empty message, which cannot be continued");
  const std::string trimmed = last.substr(begin, end + 1 - begin), behind = last.substr(begin);
  const size_t at = prompt.text.rfind(trimmed);
  if (at == std::string::npos)
    refuse_messages("messages ends with a message that the chat template does not print as it is");
  const bool keeps_space = prompt.text.compare(at, behind.size(), behind) == 0;
  prompt.text.resize(at + (keeps_space ? behind.size() : trimmed.size()));
  prompt.plain.resize(prompt.text.size());
}

}  // namespace

ChatPrompts::ChatPrompts(const ServedModel& model) : model_(model) {
  try {
    template_.emplace(ChatTemplate::from_folder(model.folder));
    source_ = template_->source();
  } catch (const Error& error) {
    why_none_ = error.what();
  }
}

ChatPrompts::ChatTokens ChatPrompts::tokens_of(const RequestBody& body) const {
  if (!template_) refuse_messages(fmt::format("messages need a chat template: {}; see /v1/completions", why_none_));
  if (!model_.tokenizer) refuse_messages("messages are text, and the model has no tokenizer.json");
  ChatPrompt prompt = render(body);
  std::vector<int32_t> tokens;
  refusing(body, "messages", [&] {
    tokens = model_.tokenizer->encode(
        prompt.text,
        {.parse_special = true, .plain = prompt.plain, .add_special_tokens = body.flag("add_special_tokens", false)});
  });
  if (tokens.empty()) refuse_messages("messages make a prompt without tokens");
  return {std::move(tokens), std::move(prompt.text)};
}

ChatPrompt ChatPrompts::render(const RequestBody& body) const {
  RequestJson variables = model_.defaults.template_args;
  if (const RequestJson* more = body.object("chat_template_kwargs")) variables.update(*more);
  if (variables.contains("chat_template"))
    throw bad_request("chat_template_kwargs brings a chat_template, and the checkpoint's is the only one",
                      "chat_template_kwargs");
  const bool continues = body.flag("continue_final_message", false),
             generates = body.flag("add_generation_prompt", true);
  if (continues && generates)
    throw bad_request("continue_final_message needs add_generation_prompt false", "continue_final_message");
  variables["messages"] = checked_conversation(body, source_.find("developer") != std::string::npos);
  variables["add_generation_prompt"] = generates;
  for (const char* name : {"tools", "documents"})
    if (const RequestJson* list = body.array(name); list != nullptr && !list->empty()) variables[name] = *list;
  ChatPrompt prompt;
  refusing(body, "messages", [&] { prompt = template_->render(variables, std::time(nullptr)); });
  if (continues) leave_open(prompt, variables["messages"].back()["content"].get<std::string>());
  return prompt;
}

}  // namespace nodewright
