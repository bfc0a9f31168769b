#include "serve/tools/answer_parts.h"

#include <utility>

namespace nodewright {
namespace {

constexpr const char* kCallTokens[] = {"<tool_call>",  "</tool_call>", "<|python_tag|>",
                                       "[TOOL_CALLS]", "[ARGS]",       "[CALL_ID]"};
constexpr const char* kThoughtTokens[] = {"<think>", "</think>"};

}  // namespace

ChatForm chat_form(ToolChoice tools, ReasoningParser reasoning, Thought thought,
                   const std::optional<Tokenizer>& tokenizer) {
  ChatForm form{.tools = std::move(tools), .thought = thought};
  if (!form.tools.structure) form.reasoning = reasoning;
  const auto show = [&](const char* token) {
    const auto id = tokenizer ? tokenizer->token_to_id(token) : std::nullopt;
    if (id && tokenizer->is_special(*id)) form.shown.push_back(*id);
  };
  if (form.tools.form != ToolCallForm::none)
    for (const char* token : kCallTokens) show(token);
  if (form.reasoning != ReasoningParser::none)
    for (const char* token : kThoughtTokens) show(token);
  return form;
}

AnswerPart AnswerParts::push(std::string_view text) {
  AnswerPart part = reasoning_.push(text);
  part.content = calls_.push(part.content);
  return part;
}

AnswerPart AnswerParts::finish() {
  AnswerPart part = reasoning_.finish();
  part.content = calls_.push(part.content) + calls_.finish();
  return part;
}

}  // namespace nodewright
