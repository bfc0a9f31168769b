#include "text/chat/template_shape.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/json_depth.h"
#include "base/work_budget.h"
#include "base/written_number.h"
#include "runtime/error.h"
#include "text/chat/chat_template.h"

namespace nodewright {
namespace {

using ShapeJson = nlohmann::ordered_json;

// No template writes these.
constexpr const char *kContent = "qzcontent", *kName = "qzname", *kCall = "qzcall", *kKey = "qzkey",
                     *kValue = "qzvalue", *kRole = "qzrole";
constexpr const char* kArgumentsText = R"({"qzkey": "qzvalue"})";
enum class Nothing { null, absent, empty };
constexpr Nothing kNothings[] = {Nothing::null, Nothing::absent, Nothing::empty};

bool holds_text(const std::string& text, std::string_view word) { return text.find(word) != std::string::npos; }

size_t times_in(const std::string& text, std::string_view word) {
  size_t times = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++times;
  return times;
}

ShapeJson text_parts(const ShapeJson& text) { return ShapeJson::array({{{"type", "text"}, {"text", text}}}); }

// What the template wrote itself, with a line end in place of what it was given.
std::string own_text(const ChatPrompt& prompt) {
  std::string own;
  for (size_t i = 0; i < prompt.text.size(); ++i) own += prompt.plain[i] == 0 ? prompt.text[i] : '\n';
  return own;
}

// Whether the parts were printed as a value, with their keys.
bool prints_keys(const ChatPrompt& prompt) {
  constexpr size_t kLongestBetween = 12;  // "text": "
  const size_t at = prompt.text.find(kContent);
  const size_t first = at - std::min(at, kLongestBetween);
  const size_t key = prompt.text.substr(first, at - first).rfind("text");
  return key != std::string::npos && prompt.plain[first + key] != 0;
}

// A role's name in any case as one letter.
std::string without_role(const std::string& text, const std::string& role) {
  std::string lower = text, shorter;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  size_t begin = 0;
  for (size_t at = lower.find(role); at != std::string::npos; at = lower.find(role, begin)) {
    shorter.append(text, begin, at - begin).append("R");
    begin = at + role.size();
  }
  return shorter.append(text, begin);
}

class Probe {
 public:
  explicit Probe(const ChatTemplate& chat_template) : template_(chat_template) {}

  TemplateShape shape() {
    shape_.contents["user"] = content_of_role("user");
    if (!shape_.contents["user"].text && !shape_.contents["user"].parts) {  // it prints no message that we know
      shape_.contents["user"].text = true;
      find_tools();
      return shape_;
    }
    for (const char* role : {"system", "assistant", "tool"}) {
      TemplateShape::Content content = content_of_role(role);
      if (!content.text && !content.parts) content = shape_.contents["user"];
      shape_.contents[role] = content;
    }
    find_calls();
    find_tools();
    find_developer();
    return shape_;
  }

 private:
  std::optional<ChatPrompt> rendered(ShapeJson messages, bool with_tools = false) const {
    ShapeJson variables{{"messages", std::move(messages)}, {"add_generation_prompt", true}};
    if (with_tools)
      variables["tools"] = ShapeJson::array({{{"type", "function"},
                                              {"function",
                                               {{"name", kName},
                                                {"description", "d"},
                                                {"parameters",
                                                 {{"type", "object"},
                                                  {"properties", {{kKey, {{"type", "string"}, {"description", "d"}}}}},
                                                  {"required", {kKey}}}}}}}});
    if (spent_ >= kMostShapeWork) return std::nullopt;
    const Spending spending{*this};
    try {
      return template_.render(variables, 0);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  ShapeJson message(const std::string& role, const ShapeJson& content) const {
    const bool wants_parts = content.is_string() && !shape_.content_of(role).text;
    ShapeJson made{{"role", role}, {"content", wants_parts ? text_parts(content) : content}};
    if (role == "tool") made.update({{"tool_call_id", "abcdefghi"}, {"name", kName}});
    return made;
  }

  TemplateShape::Content content_of_role(const std::string& role) const {
    const auto with = [&](const ShapeJson& content) -> std::optional<ChatPrompt> {
      const ShapeJson user = message("user", "u");
      ShapeJson own{{"role", role}, {"content", content}};
      if (role == "user") return rendered(ShapeJson::array({own}));
      if (role == "system") return rendered(ShapeJson::array({own, user}));
      if (role == "assistant") return rendered(ShapeJson::array({user, own, user}));
      own.update({{"tool_call_id", "abcdefghi"}, {"name", kName}});
      for (const bool with_tools : {true, false})
        for (const ShapeJson& arguments : {ShapeJson{{kKey, kValue}}, ShapeJson(kArgumentsText)})
          if (auto found = rendered(ShapeJson::array({user, call(arguments, Nothing::empty), own}), with_tools))
            return found;
      return std::nullopt;
    };
    const auto text = with(kContent), parts = with(text_parts(kContent));
    return {.text = text && holds_text(text->text, kContent),
            .parts = parts && holds_text(parts->text, kContent) && !prints_keys(*parts)};
  }

  ShapeJson call(const ShapeJson& arguments, Nothing nothing) const {
    ShapeJson made{{"role", "assistant"}};
    if (nothing == Nothing::null) made["content"] = nullptr;
    if (nothing == Nothing::empty)
      made["content"] = shape_.content_of("assistant").text ? ShapeJson("") : text_parts("");
    made["tool_calls"] = ShapeJson::array(
        {{{"id", "abcdefghi"}, {"type", "function"}, {"function", {{"name", kCall}, {"arguments", arguments}}}}});
    return made;
  }

  static bool shows_object(const ChatPrompt& prompt) {
    return holds_text(prompt.text, kCall) && holds_text(prompt.text, kKey) && holds_text(prompt.text, kValue) &&
           !holds_text(prompt.text, std::string("'") + kKey + "'");
  }
  static bool shows_text(const ChatPrompt& prompt) { return holds_text(prompt.text, kArgumentsText); }

  // The first kind of conversation in which a call is printed says how; where none prints its arguments, its name.
  void find_calls() {
    for (const bool name_only : {false, true})
      for (const bool with_tools : {false, true})
        for (const int behind : {1, 0, 2})
          if (find_calls(name_only, with_tools, behind)) return;
  }

  // `after`: messages after that of the call.
  bool find_calls(bool name_only, bool with_tools, int behind) {
    const auto with = [&](const ShapeJson& arguments, Nothing nothing) {
      ShapeJson messages = ShapeJson::array({message("user", "u"), call(arguments, nothing)});
      if (behind > 0) messages.push_back(message("tool", "t"));
      if (behind > 1) messages.push_back(message("user", "u"));
      return rendered(std::move(messages), with_tools);
    };
    const ShapeJson object{{kKey, kValue}};
    bool found = false;
    std::optional<size_t> nones;  // where the content is ""
    for (const Nothing nothing : {Nothing::empty, Nothing::null, Nothing::absent}) {
      const auto as_object = with(object, nothing), as_text = with(kArgumentsText, nothing);
      const bool is_object = as_object && (name_only ? holds_text(as_object->text, kCall) : shows_object(*as_object));
      const bool is_text = !name_only && as_text && shows_text(*as_text);
      const ChatPrompt* shown = is_object ? &*as_object : is_text ? &*as_text : nullptr;
      if (shown == nullptr) continue;
      const size_t printed = times_in(shown->text, "None");
      if (nothing == Nothing::empty) nones = printed;
      if (printed > nones.value_or(0)) continue;
      (nothing == Nothing::null     ? shape_.no_content.null
       : nothing == Nothing::absent ? shape_.no_content.absent
                                    : shape_.no_content.empty) = true;
      if (std::exchange(found, true)) continue;
      shape_.text_arguments = !is_object;
      shape_.calls = own_text(*shown);
      const auto cut = with(std::string("{\"qzkey\": \"") + kValue, nothing), list = with({kValue, 1}, nothing);
      shape_.other_arguments =
          is_object && cut && list && (name_only || (holds_text(cut->text, kValue) && holds_text(list->text, kValue)));
    }
    return found;
  }

  void find_tools() {
    const ShapeJson user = message("user", "u");
    for (const ShapeJson& messages : {ShapeJson::array({user}), ShapeJson::array({message("system", "s"), user})}) {
      const auto prompt = rendered(messages, true), without = rendered(messages);
      if (!prompt || (without && prompt->text == without->text)) continue;
      shape_.reads_tools = true;
      shape_.tools = own_text(*prompt);
      shape_.shows_tools = holds_text(prompt->text, kName);
      return;
    }
  }

  // A template that does not know the role prints it as it prints an invented one.
  void find_developer() {
    const ShapeJson user = message("user", "u");
    const auto of_role = [&](const std::string& role) {
      return rendered(ShapeJson::array({message(role, kContent), user}));
    };
    const auto developer = of_role("developer"), other = of_role(kRole);
    shape_.knows_developer = developer && holds_text(developer->text, kContent) &&
                             (!other || without_role(developer->text, "developer") != without_role(other->text, kRole));
  }

  // Counts what one rendering takes, also where it throws.
  struct Spending {
    const Probe& probe;
    const WorkBudget budget{UINT64_MAX - 1};
    ~Spending() { probe.spent_ += budget.spent(); }
  };

  const ChatTemplate& template_;
  TemplateShape shape_;
  mutable uint64_t spent_ = 0;
};

// What the text of a call's arguments says; nothing where it is no JSON, as of an old call that max_tokens cut.
std::optional<ShapeJson> arguments_in(const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return ShapeJson::object();
  if (nests_too_deep(text)) return std::nullopt;
  try {
    return parse_as_written(text);
  } catch (const ShapeJson::exception&) {
    return std::nullopt;
  }
}

ShapeJson shaped_arguments(const ShapeJson& sent, const TemplateShape& shape) {
  std::optional<ShapeJson> said = sent.is_string() ? arguments_in(sent.get<std::string>()) : sent;
  if (said && said->is_null()) said = ShapeJson::object();
  if (shape.text_arguments) return sent.is_string() && !(said && said->empty()) ? sent : ShapeJson(json_text(*said));
  if (said && (said->is_object() || shape.other_arguments)) return *said;
  if (shape.other_arguments) return sent;
  return {{"arguments", sent}};  // the template goes through an object's keys
}

// In OpenAI's form. Objects of another form are the template's to read.
void shape_calls(ShapeJson& calls, const TemplateShape& shape) {
  for (ShapeJson& call : calls) {
    if (!call.is_object()) continue;
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) continue;
    (*function)["arguments"] = shaped_arguments(function->value("arguments", ShapeJson()), shape);
  }
}

ShapeJson shaped_content(const ShapeJson& content, const TemplateShape::Content& shape) {
  if (content.is_string()) return shape.text ? content : text_parts(content);
  if (!content.is_array() || shape.parts) return content;
  std::string text;
  for (const ShapeJson& part : content)
    text += (&part == &content.front() ? "" : "\n") + part.value("text", std::string());
  return text;
}

// A message without text: as it was sent, or in the form that the template takes as none.
void shape_no_content(ShapeJson& message, const TemplateShape& shape, const ShapeJson& empty) {
  const TemplateShape::NoContent& taken = shape.no_content;
  const bool has_calls = message.contains("tool_calls");
  const auto sent = message.find("content");
  const Nothing first = sent == message.end() ? Nothing::absent : sent->is_null() ? Nothing::null : Nothing::empty;
  const auto takes = [&](Nothing one) {
    return has_calls && (one == Nothing::null ? taken.null : one == Nothing::absent ? taken.absent : taken.empty);
  };
  Nothing chosen = Nothing::empty;
  if (takes(first)) {
    chosen = first;
  } else {
    for (const Nothing one : kNothings)
      if (takes(one)) {
        chosen = one;
        break;
      }
  }
  if (chosen == Nothing::absent)
    message.erase("content");
  else
    message["content"] = chosen == Nothing::null ? ShapeJson() : empty;
}

}  // namespace

const TemplateShape::Content& TemplateShape::content_of(const std::string& role) const {
  static const Content kText;
  const auto found = contents.find(role), user = contents.find("user");
  return found != contents.end() ? found->second : user != contents.end() ? user->second : kText;
}

TemplateShape shape_of(const ChatTemplate& chat_template) { return Probe(chat_template).shape(); }

ShapeJson shaped_messages(const ShapeJson& messages, const TemplateShape& shape) {
  ShapeJson shaped = messages;
  for (ShapeJson& message : shaped) {
    if (message.value("role", "") == "developer" && !shape.knows_developer) message["role"] = "system";
    if (const auto calls = message.find("tool_calls"); calls != message.end()) shape_calls(*calls, shape);
    const TemplateShape::Content& content = shape.content_of(message.value("role", ""));
    const auto said = message.find("content");
    const bool says_nothing = said == message.end() || said->is_null() || *said == "" || *said == ShapeJson::array();
    if (says_nothing)
      shape_no_content(message, shape, content.text ? ShapeJson("") : text_parts(""));
    else
      *said = shaped_content(*said, content);
  }
  return shaped;
}

}  // namespace nodewright
