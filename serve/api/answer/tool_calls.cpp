#include "serve/api/answer/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/api/call_id.h"

namespace nodewright {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kSpace = " \t\r\n";

// The longest end of `text` with which `word` may begin.
size_t begun(std::string_view text, std::string_view word) {
  for (size_t size = std::min(text.size(), word.size() - 1); size > 0; --size)
    if (word.starts_with(text.substr(text.size() - size))) return size;
  return 0;
}

std::string_view trimmed_space(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

std::string ToolCallText::push(std::string_view text) {
  switch (choice_.form) {
    case ToolCallForm::none:
      return std::string(text);
    case ToolCallForm::tagged:
      held_ += text;
      return push_tagged();
    case ToolCallForm::bare:
    case ToolCallForm::listed:
      held_ += text;
      return push_objects();
    case ToolCallForm::named:
      held_ += text;
      return {};
  }
  return {};
}

// What is left of a call that max_tokens cut is text, where it is not behind whole ones.
std::string ToolCallText::finish() {
  switch (choice_.form) {
    case ToolCallForm::none:
      return {};
    case ToolCallForm::tagged:
      if (in_call_ && add_call(held_, false)) held_.clear();  // the closing tag is missing
      if (in_call_ && !held_.empty()) held_.insert(0, kOpen);
      if (count_ > 0 && (in_call_ || kOpen.starts_with(trimmed_space(held_)))) held_.clear();
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

std::string ToolCallText::push_tagged() {
  std::string content;
  while (true) {
    if (in_call_) {
      const size_t close = held_.find(kClose, searched_ - std::min(searched_, kClose.size()));
      searched_ = close == std::string::npos ? held_.size() : 0;
      if (close == std::string::npos) return content;
      if (!add_call(std::string_view(held_).substr(0, close), false))
        content.append(kOpen).append(held_, 0, close + kClose.size());
      held_.erase(0, close + kClose.size());
      in_call_ = false;
    }
    const size_t open = held_.find(kOpen);
    const size_t end = open == std::string::npos ? held_.size() - begun(held_, kOpen) : open;
    // Space between calls, and behind the last, is no answer.
    const std::string_view before = std::string_view(held_).substr(0, end);
    const bool is_space = count_ > 0 && trimmed_space(before).empty();
    if (!is_space) content += before;
    if (!is_space || open != std::string::npos) held_.erase(0, end);
    if (open == std::string::npos) return content;
    held_.erase(0, kOpen.size());
    in_call_ = true;
  }
}

std::string ToolCallText::push_objects() {
  while (!is_content_) {
    const size_t first = held_.find_first_not_of(choice_.form == ToolCallForm::listed ? " \t\r\n[,]"
                                                 : count_ > 0                         ? " \t\r\n;"
                                                                                      : kSpace);
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
      add(name, arguments->is_string() ? arguments->get<std::string>()
                                       : arguments->dump(-1, ' ', false, RequestJson::error_handler_t::replace));
      return true;
    }
  if (known_only) return false;
  add(name, "{}");
  return true;
}

void ToolCallText::add(std::string name, std::string arguments) {
  if (count_ > 0 && !choice_.parallel) return;
  calls_.push_back({random_id("call_"), std::move(name), std::move(arguments)});
  ++count_;
}

}  // namespace nodewright
