#include "serve/tools/conversation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "serve/api/asked/request_body.h"

namespace nodewright {
namespace {

template <class... Values>
[[noreturn]] void refuse_conversation(fmt::format_string<Values...> why, Values&&... values) {
  throw std::invalid_argument("messages " + fmt::format(why, std::forward<Values>(values)...));
}

std::string text_of_part(const RequestJson& part) {
  if (part.is_string()) return part.get<std::string>();
  const RequestJson type = part.is_object() ? part.value("type", RequestJson()) : RequestJson();
  if (type != "text" && type != "input_text" && type != "output_text")
    refuse_conversation("holds a part of type {}, and only text is supported", shown(type));
  const RequestJson text = part.value("text", RequestJson());
  if (!text.is_string()) refuse_conversation("holds a part with the text {}, expected a string", shown(text));
  return text.get<std::string>();
}

// A string, or the parts that OpenAI's clients send, joined as vLLM does.
std::string text_of_content(const RequestJson& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    refuse_conversation("holds the content {}, expected a string or a list of parts", shown(content));
  std::string text;
  for (const RequestJson& part : content) text += (&part == &content.front() ? "" : "\n") + text_of_part(part);
  return text;
}

void open_arguments(RequestJson& arguments) {
  const std::string text = arguments.get<std::string>();
  try {
    arguments = text.empty() ? RequestJson::object() : RequestBody::parse(text).json();
  } catch (const ApiError& error) {
    refuse_conversation("holds a tool call whose arguments are no JSON object: {}", error.what());
  }
}

// In OpenAI's form. Objects of another form are the template's to read.
void open_calls(RequestJson& calls) {
  if (!calls.is_array()) refuse_conversation("holds the tool_calls {}, expected a list", shown(calls));
  for (RequestJson& call : calls) {
    if (!call.is_object()) refuse_conversation("holds the tool call {}, expected an object", shown(call));
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) continue;
    const auto arguments = function->find("arguments");
    if (arguments != function->end() && arguments->is_string()) open_arguments(*arguments);
  }
}

}  // namespace

RequestJson checked_conversation(const RequestJson& messages, const std::string& template_source) {
  if (!messages.is_array() || messages.empty())
    refuse_conversation("is {}, expected a list of at least one message", shown(messages));
  const bool knows_developer = template_source.find("developer") != std::string::npos;
  RequestJson checked = messages;
  for (RequestJson& message : checked) {
    if (!message.is_object()) refuse_conversation("holds {}, expected objects", shown(message));
    const RequestJson role = message.value("role", RequestJson());
    if (!role.is_string()) refuse_conversation("holds the role {}, expected a string", shown(role));
    if (role == "developer" && !knows_developer) message["role"] = "system";
    if (message.value("tool_calls", RequestJson()).is_null())
      message.erase("tool_calls");
    else
      open_calls(message["tool_calls"]);
    const RequestJson content = message.value("content", RequestJson());
    message["content"] = content.is_null() && role == "assistant" ? std::string() : text_of_content(content);
  }
  return checked;
}

}  // namespace nodewright
