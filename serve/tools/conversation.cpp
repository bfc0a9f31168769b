#include "serve/tools/conversation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace nodewright {
namespace {

// Null where `object` does not have it.
const RequestJson* member(const RequestJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

void need_string(const RequestJson& object, const char* name, const std::string& place) {
  const RequestJson* value = member(object, name);
  if (value == nullptr || !value->is_string()) refuse_value(fmt::format("{}.{}", place, name), value, "a string");
}

// It may be absent, or null.
void check_string(const RequestJson& object, const char* name, const std::string& place) {
  const RequestJson* value = member(object, name);
  if (value != nullptr && !value->is_null()) need_string(object, name, place);
}

// {"type": "text", "text"} of the parts that OpenAI's clients send.
RequestJson checked_part(const RequestJson& part, const std::string& place) {
  if (part.is_string()) return {{"type", "text"}, {"text", part}};
  if (!part.is_object()) refuse_value(place, &part, "an object with a type");
  need_string(part, "type", place);
  const RequestJson& type = part["type"];
  const bool is_refusal = type == "refusal";
  if (!is_refusal && type != "text" && type != "input_text" && type != "output_text")
    throw std::invalid_argument(fmt::format("{}.type is {}, and only text is supported", place, shown(type)));
  const char* const said = is_refusal ? "refusal" : "text";
  need_string(part, said, place);
  RequestJson checked = part;
  const RequestJson text = part[said];
  checked.erase("refusal");
  checked["type"] = "text";
  checked["text"] = text;
  return checked;
}

void check_content(RequestJson& message, const std::string& place) {
  const auto content = message.find("content");
  const std::string of_content = place + ".content";
  if (content == message.end() && message["role"] != "assistant")
    refuse_value(of_content, nullptr, "a string or a list of parts");
  if (content == message.end() || content->is_null() || content->is_string()) return;
  if (!content->is_array()) refuse_value(of_content, &*content, "a string or a list of parts");
  for (size_t i = 0; i < content->size(); ++i)
    (*content)[i] = checked_part((*content)[i], fmt::format("{}[{}]", of_content, i));
}

// As JSON in a string, or as the object that this says.
void check_arguments(const RequestJson& function, const std::string& place) {
  const RequestJson* arguments = member(function, "arguments");
  if (arguments == nullptr || arguments->is_null() || arguments->is_string() || arguments->is_object()) return;
  refuse_value(place + ".arguments", arguments, "an object, or a string that holds its JSON");
}

void check_call(const RequestJson& call, const std::string& place) {
  if (!call.is_object()) refuse_value(place, &call, "an object with a function");
  check_string(call, "id", place);
  if (const RequestJson* type = member(call, "type"); type != nullptr && !type->is_null() && *type != "function")
    refuse_value(place + ".type", type, "\"function\"");
  const RequestJson* function = member(call, "function");
  const std::string of_function = place + ".function";
  if (function == nullptr || !function->is_object())
    refuse_value(of_function, function, "an object with name and arguments");
  need_string(*function, "name", of_function);
  check_arguments(*function, of_function);
}

void check_calls(const RequestJson& calls, const std::string& place) {
  if (!calls.is_array()) refuse_value(place, &calls, "a list of calls");
  for (size_t i = 0; i < calls.size(); ++i) check_call(calls[i], fmt::format("{}[{}]", place, i));
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

void check_message(RequestJson& message, const std::string& place) {
  if (!message.is_object()) refuse_value(place, &message, "an object with role and content");
  need_string(message, "role", place);
  leave_out_nothing(message);
  check_string(message, "name", place);
  check_string(message, "tool_call_id", place);
  if (const RequestJson* calls = member(message, "tool_calls")) check_calls(*calls, place + ".tool_calls");
  check_content(message, place);
  const RequestJson content = message.value("content", RequestJson()),
                    refusal = message.value("refusal", RequestJson());
  if (refusal.is_string() && (content.is_null() || content == "")) message["content"] = refusal;
}

}  // namespace

RequestJson checked_conversation(const RequestJson& messages) {
  if (!messages.is_array() || messages.empty()) refuse_value("messages", &messages, "a list of at least one message");
  RequestJson checked = messages;
  for (size_t i = 0; i < checked.size(); ++i) check_message(checked[i], fmt::format("messages[{}]", i));
  return checked;
}

std::string add_missing_ids(RequestJson& messages) {
  constexpr const char* kId = "abcdefghi";  // nine letters or digits, as Mistral's templates want them
  std::string first;
  const auto add = [&](RequestJson& object, const char* name, const std::string& place) {
    if (const RequestJson* id = member(object, name); id != nullptr && !id->is_null()) return;
    object[name] = kId;
    if (first.empty()) first = fmt::format("{}.{}", place, name);
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    RequestJson& message = messages[i];
    const std::string place = fmt::format("messages[{}]", i);
    if (const auto calls = message.find("tool_calls"); calls != message.end())
      for (size_t j = 0; j < calls->size(); ++j) add((*calls)[j], "id", fmt::format("{}.tool_calls[{}]", place, j));
    if (message["role"] == "tool") add(message, "tool_call_id", place);
  }
  return first;
}

}  // namespace nodewright
