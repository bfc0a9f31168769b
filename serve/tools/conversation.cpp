#include "serve/tools/conversation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace nodewright {
namespace {

template <class... Values>
[[noreturn]] void refuse_conversation(fmt::format_string<Values...> why, Values&&... values) {
  throw std::invalid_argument("messages " + fmt::format(why, std::forward<Values>(values)...));
}

// {"type": "text", "text"} of the parts that OpenAI's clients send.
RequestJson checked_part(const RequestJson& part) {
  if (part.is_string()) return {{"type", "text"}, {"text", part}};
  const RequestJson type = part.is_object() ? part.value("type", RequestJson()) : RequestJson();
  const bool is_refusal = type == "refusal";
  if (!is_refusal && type != "text" && type != "input_text" && type != "output_text")
    refuse_conversation("holds a part of type {}, and only text is supported", shown(type));
  const RequestJson text = part.value(is_refusal ? "refusal" : "text", RequestJson());
  if (!text.is_string()) refuse_conversation("holds a part with the text {}, expected a string", shown(text));
  RequestJson checked = part;
  checked.erase("refusal");
  checked["type"] = "text";
  checked["text"] = text;
  return checked;
}

void check_content(RequestJson& message) {
  const auto content = message.find("content");
  if (content == message.end() && message["role"] != "assistant")
    refuse_conversation("holds a message without content");
  if (content == message.end() || content->is_null() || content->is_string()) return;
  if (!content->is_array())
    refuse_conversation("holds the content {}, expected a string or a list of parts", shown(*content));
  for (RequestJson& part : *content) part = checked_part(part);
}

// Calls of another form than OpenAI's are the template's to read.
void check_calls(const RequestJson& calls) {
  if (!calls.is_array()) refuse_conversation("holds the tool_calls {}, expected a list", shown(calls));
  for (const RequestJson& call : calls)
    if (!call.is_object()) refuse_conversation("holds the tool call {}, expected an object", shown(call));
}

// Fields that say nothing, as clients hand our own answers back: "refusal": null, "tool_calls": [].
void leave_out_nothing(RequestJson& message) {
  RequestJson kept = RequestJson::object();
  for (auto& [key, value] : message.items()) {
    const bool says_nothing =
        (value.is_null() && key != "content") || (key == "tool_calls" && value == RequestJson::array());
    if (!says_nothing) kept[key] = std::move(value);
  }
  message = std::move(kept);
}

}  // namespace

RequestJson checked_conversation(const RequestJson& messages) {
  if (!messages.is_array() || messages.empty())
    refuse_conversation("is {}, expected a list of at least one message", shown(messages));
  RequestJson checked = messages;
  for (RequestJson& message : checked) {
    if (!message.is_object()) refuse_conversation("holds {}, expected objects", shown(message));
    const RequestJson role = message.value("role", RequestJson());
    if (!role.is_string()) refuse_conversation("holds the role {}, expected a string", shown(role));
    leave_out_nothing(message);
    if (const auto calls = message.find("tool_calls"); calls != message.end()) check_calls(*calls);
    check_content(message);
    const RequestJson content = message.value("content", RequestJson()),
                      refusal = message.value("refusal", RequestJson());
    if (refusal.is_string() && (content.is_null() || content == "")) message["content"] = refusal;
  }
  return checked;
}

}  // namespace nodewright
