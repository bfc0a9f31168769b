#include "serve/tools/chat_rendering.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "runtime/error.h"
#include "serve/tools/conversation.h"

namespace nodewright {
namespace {

constexpr std::string_view kThinkTag = "<think>", kThoughtTag = "</think>", kBlanks = " \t\r\n";

// Where the template's own text before `end` begins.
size_t own_begin(const ChatPrompt& prompt, size_t end) {
  while (end > 0 && prompt.plain[end - 1] == 0) --end;
  return end;
}

// Which of the two tags comes last.
Thought last_tag(std::string_view turn) {
  const size_t opens = turn.rfind(kThinkTag), closes = turn.rfind(kThoughtTag);
  if (opens == std::string_view::npos && closes == std::string_view::npos) return Thought::unknown;
  return closes == std::string_view::npos || (opens != std::string_view::npos && opens > closes) ? Thought::open
                                                                                                 : Thought::closed;
}

Thought thought_of(const OpenPrompt& open) {
  const std::string_view turn = std::string_view(open.prompt.text).substr(own_begin(open.prompt, open.begin));
  const Thought thought = last_tag(turn);
  const bool has_begun =
      std::string_view(open.prompt.text).find_first_not_of(kBlanks, open.begin) != std::string_view::npos;
  return thought == Thought::unknown && has_begun ? Thought::closed : thought;
}

// By the template's own end of the prompt. A tag that is not its last word may stand in what it says before the turn:
// then the turn is what the generation prompt adds.
Thought thought_of(const ChatPrompt& prompt, const ChatTemplate& chat_template, const RequestJson& variables,
                   std::time_t now) {
  std::string_view own = std::string_view(prompt.text).substr(own_begin(prompt, prompt.text.size()));
  const Thought thought = last_tag(own);
  const std::string_view words = own.substr(0, own.find_last_not_of(kBlanks) + 1);
  if (thought == Thought::unknown || words.ends_with(kThinkTag) || words.ends_with(kThoughtTag)) return thought;
  RequestJson without = variables;
  without["add_generation_prompt"] = false;
  const ChatPrompt before = chat_template.render(without, now);
  return prompt.text.starts_with(before.text) ? last_tag(std::string_view(prompt.text).substr(before.text.size()))
                                              : Thought::unknown;
}

// Templates that pair answers of tools with calls refuse a conversation without their ids, in words of their own.
// Returns where otherwise.
void refuse_missing_ids(const ChatTemplate& chat_template, RequestJson variables, std::time_t now) {
  const std::string place = add_missing_ids(variables["messages"]);
  if (place.empty()) return;
  try {
    chat_template.render(variables, now);
  } catch (const Error&) {
    return;  // it has other faults
  }
  throw std::invalid_argument(fmt::format("{} is missing, and the chat template needs it", place));
}

}  // namespace

RenderedChat rendered_chat(const ChatTemplates& templates, ChatAsk asked) {
  const auto given = [](const RequestJson* list) { return list != nullptr && !list->empty(); };
  const ChatTemplate& chosen = templates.chosen(given(asked.tools), asked.template_name);
  RequestJson variables = std::move(asked.variables);
  if (given(asked.tools)) variables["tools"] = *asked.tools;
  if (given(asked.documents)) variables["documents"] = *asked.documents;
  variables["add_generation_prompt"] = asked.generates;
  const RequestJson conversation = checked_conversation(asked.messages);
  variables["messages"] = shaped_messages(conversation, chosen.shape());
  const std::time_t now = std::time(nullptr);
  RenderedChat rendered;
  try {
    if (asked.continues) {
      OpenPrompt open = chosen.render_open(variables, now);
      rendered.thought = thought_of(open);
      rendered.prompt = std::move(open.prompt);
    } else {
      rendered.prompt = chosen.render(variables, now);
      rendered.thought = thought_of(rendered.prompt, chosen, variables, now);
    }
  } catch (const Error&) {
    refuse_missing_ids(chosen, std::move(variables), now);
    throw;
  }
  return rendered;
}

}  // namespace nodewright
