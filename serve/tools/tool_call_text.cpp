#include "serve/tools/tool_call_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/written_number.h"
#include "serve/api/asked/request_body.h"
#include "serve/api/call_id.h"
#include "serve/tools/partial_word.h"

namespace nodewright {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kSpace = " \t\r\n";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kMark = "[TOOL_CALLS]", kArguments = "[ARGS]", kCallId = "[CALL_ID]";
constexpr size_t kLongestName = 256;  // bytes, with what stands between a name and its arguments

std::string_view trimmed_space(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// As JSON: null is no argument, and a text that is JSON stands for it.
std::string arguments_text(const RequestJson& arguments) {
  if (arguments.is_null()) return "{}";
  if (!arguments.is_string()) return json_text(arguments);
  const auto& text = arguments.get_ref<const std::string&>();
  if (trimmed_space(text).empty()) return "{}";
  return RequestJson::accept(text) ? text : json_text(arguments);
}

}  // namespace

std::string ToolCallText::push(std::string_view text) {
  if (choice_.form == ToolCallForm::none) return std::string(text);
  held_ += text;
  switch (choice_.form) {
    case ToolCallForm::tagged:
      return push_tagged();
    case ToolCallForm::bare:
    case ToolCallForm::listed:
      return push_objects();
    case ToolCallForm::marked:
      return push_marked();
    default:
      return {};  // named: the whole text is one
  }
}

// What is left of a call that max_tokens cut is text, where it is not after whole ones.
std::string ToolCallText::finish() {
  const bool is_cut = in_call_ || (after_call_ && mark().starts_with(trimmed_space(held_)));
  switch (choice_.form) {
    case ToolCallForm::none:
      return {};
    case ToolCallForm::tagged:
    case ToolCallForm::marked:
      if (in_call_ && choice_.form == ToolCallForm::tagged && add_call(held_, false))
        held_.clear();  // the closing tag is missing
      else if (in_call_ && choice_.form == ToolCallForm::tagged &&
               std::exchange(tag_scan_, {.is_json = false}).is_json && held_.find(kClose) != std::string::npos) {
        const std::string content = push_tagged();  // a string without an end
        return content + finish();
      } else if (is_cut && count_ > 0)
        held_.clear();
      else if (in_call_)
        held_.insert(0, mark());
      break;
    case ToolCallForm::bare:
    case ToolCallForm::listed:
      if (count_ > 0) held_.clear();
      break;
    case ToolCallForm::named:
      add(choice_.names.front(), std::exchange(held_, {}));
      break;
  }
  return std::exchange(held_, {});
}

std::string_view ToolCallText::mark() const { return choice_.form == ToolCallForm::marked ? kMark : kOpen; }

// Takes what stands before the mark, or before what may be its beginning, from what is held. Space between calls, and
// after the last, is no answer.
std::string ToolCallText::take_text_before_mark() {
  const size_t open = held_.find(mark());
  const bool found = open != std::string::npos;
  const size_t end = found ? open : held_.size() - begun_at_end(held_, mark());
  std::string before = held_.substr(0, end);
  const bool is_space = after_call_ && trimmed_space(before).empty();
  if (!is_space) after_call_ = false;
  if (!is_space || found) held_.erase(0, found ? end + mark().size() : end);
  in_call_ = found;
  return is_space ? std::string() : before;
}

std::string ToolCallText::push_tagged() {
  std::string content;
  while (true) {
    if (in_call_) {
      const size_t close = tag_scan_.close_in(held_);
      if (close == std::string::npos) return content;
      tag_scan_ = {};
      if (!add_call(std::string_view(held_).substr(0, close), false))
        content.append(kOpen).append(held_, 0, close + kClose.size());
      held_.erase(0, close + kClose.size());
    }
    content += take_text_before_mark();
    if (!in_call_) return content;
  }
}

std::string ToolCallText::push_objects() {
  while (!is_content_) {
    size_t first = held_.find_first_not_of(choice_.form == ToolCallForm::listed ? " \t\r\n[,]"
                                           : count_ > 0                         ? " \t\r\n;"
                                                                                : kSpace);
    if (first == std::string::npos) return {};
    const std::string_view rest = std::string_view(held_).substr(first);
    if (rest.size() < kPythonTag.size() && kPythonTag.starts_with(rest)) return {};
    if (rest.starts_with(kPythonTag)) first = held_.find_first_not_of(kSpace, first + kPythonTag.size());
    if (first == std::string::npos) return {};
    if (held_[first] != '{') {
      is_content_ = true;
      break;
    }
    if (!scan_.passes_object(std::string_view(held_).substr(first))) return {};
    is_content_ = !take_object(first);
  }
  return std::exchange(held_, {});
}

// Whether the whole object that begins at `first` is a call; then it is taken.
bool ToolCallText::take_object(size_t first) {
  const size_t size = std::exchange(scan_, {}).at;
  if (!add_call(std::string_view(held_).substr(first, size), true)) return false;
  held_.erase(0, first + size);
  return true;
}

std::string ToolCallText::push_marked() {
  std::string content;
  while (true) {
    if (in_call_) {
      const Marked marked = take_marked();
      if (marked == Marked::unfinished) return content;
      if (marked == Marked::other) content += kMark;  // the rest is text
      scan_ = {};
    }
    content += take_text_before_mark();
    if (!in_call_) return content;
  }
}

ToolCallText::Marked ToolCallText::take_marked() {
  const size_t first = held_.find_first_not_of(kSpace);
  if (first == std::string::npos) return Marked::unfinished;
  return held_[first] == '[' ? take_marked_list(first) : take_marked_name(first);
}

// [{"name", "arguments"}, ...]
ToolCallText::Marked ToolCallText::take_marked_list(size_t first) {
  if (!scan_.passes_object(std::string_view(held_).substr(first))) return Marked::unfinished;
  if (!add_list(std::string_view(held_).substr(first, scan_.at))) return Marked::other;
  held_.erase(0, first + scan_.at);
  return Marked::taken;
}

// name[ARGS]{...}, or name[CALL_ID]id[ARGS]{...}
ToolCallText::Marked ToolCallText::take_marked_name(size_t first) {
  const size_t brace = held_.find('{', first);
  const std::string_view between = std::string_view(held_).substr(first, std::min(brace, held_.size()) - first);
  if (between.size() > kLongestName || between.find('\n') != std::string_view::npos) return Marked::other;
  if (brace == std::string::npos) return Marked::unfinished;
  const std::string_view name =
      trimmed_space(between.substr(0, std::min(between.find(kArguments), between.find(kCallId))));
  if (name.empty()) return Marked::other;
  if (!scan_.passes_object(std::string_view(held_).substr(brace))) return Marked::unfinished;
  try {
    add(std::string(name), json_text(RequestBody::parse(std::string_view(held_).substr(brace, scan_.at)).json()));
  } catch (const ApiError&) {
    return Marked::other;
  }
  held_.erase(0, brace + scan_.at);
  return Marked::taken;
}

size_t ToolCallText::TagScan::close_in(std::string_view text) {
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (std::exchange(is_escaped, false)) continue;
    if (in_string && static_cast<unsigned char>(c) < 0x20) {  // no string of JSON: from the beginning, without strings
      *this = {.is_json = false};
      return close_in(text);
    }
    if (c == '"' && is_json) in_string = !in_string;
    if (in_string) is_escaped = c == '\\';
    if (in_string || c != '<') continue;
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(kClose)) return at;
    if (rest.size() < kClose.size() && kClose.starts_with(rest)) return std::string_view::npos;
  }
  return std::string_view::npos;
}

bool ToolCallText::ObjectScan::passes_object(std::string_view text) {
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (std::exchange(is_escaped, false)) continue;
    if (c == '"') in_string = !in_string;
    if (in_string)
      is_escaped = c == '\\';
    else if (c == '{' || c == '[')
      ++depth;
    else if ((c == '}' || c == ']') && --depth == 0)
      return ++at, true;
  }
  return false;
}

// All of its calls, or none.
bool ToolCallText::add_list(std::string_view json) {
  std::vector<std::pair<std::string, std::string>> found;
  try {
    const RequestJson list = RequestBody::parse(fmt::format(R"({{"calls":{}}})", json)).json()["calls"];
    if (!list.is_array() || list.empty()) return false;
    for (const RequestJson& call : list)
      found.emplace_back(call.at("name").get<std::string>(),
                         arguments_text(call.contains("arguments") ? call["arguments"] : call.at("parameters")));
  } catch (const std::exception&) {
    return false;
  }
  for (auto& [name, arguments] : found) add(std::move(name), std::move(arguments));
  return true;
}

bool ToolCallText::add_call(std::string_view json, bool known_only) {
  RequestJson call;
  try {
    call = RequestBody::parse(trimmed_space(json)).json();
  } catch (const ApiError&) {
    return false;
  }
  const RequestJson name = call.value("name", RequestJson());
  if (!name.is_string()) return false;
  if (known_only && std::ranges::count(choice_.names, name.get_ref<const std::string&>()) == 0) return false;
  for (const char* field : {"arguments", "parameters"})
    if (const auto arguments = call.find(field); arguments != call.end()) {
      add(name, arguments_text(*arguments));
      return true;
    }
  if (known_only) return false;
  add(name, "{}");
  return true;
}

void ToolCallText::add(std::string name, std::string arguments) {
  after_call_ = true;
  if (count_ > 0 && !choice_.parallel) return;
  // Mistral's templates take ids of nine letters and digits alone.
  std::string id = choice_.form == ToolCallForm::marked ? random_id("").substr(0, 9) : random_id("call_");
  calls_.push_back({std::move(id), std::move(name), std::move(arguments)});
  ++count_;
}

// Counted in the text, and not in the grammar: 16 copies of the schemas of 20 functions are 190 000 states of a
// pattern.
EndFunction end_after_calls(EndFunction inner, const ToolChoice& choice, TextStream stream) {
  constexpr int64_t kMostForcedCalls = 16;
  return [inner = std::move(inner), stream = std::move(stream),
          text = ToolCallText(choice)](int32_t token) mutable -> std::optional<EndReason> {
    const std::optional<EndReason> end = inner ? inner(token) : std::nullopt;
    text.push(stream.push(token));
    return !end && text.count() >= kMostForcedCalls ? EndReason::complete : end;
  };
}

}  // namespace nodewright
