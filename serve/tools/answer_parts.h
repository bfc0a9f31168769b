// The text of an answer taken apart: the model's reasoning, its content and its tool calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/tools/reasoning_text.h"
#include "serve/tools/tool_call_text.h"
#include "serve/tools/tool_choice.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// What is looked for in the answers of a model.
struct AnswerParsers {
  ToolCallParser tool_calls = ToolCallParser::automatic;
  ReasoningParser reasoning = ReasoningParser::none;
};

// What is looked for in the answers to one request.
struct ChatForm {
  ToolChoice tools;
  ReasoningParser reasoning = ReasoningParser::none;
  Thought thought = Thought::unknown;  // where the answer begins
  std::vector<TokenId> shown;          // special tokens that are part of the text, because they say where its parts are

  bool is_plain() const { return tools.form == ToolCallForm::none && reasoning == ReasoningParser::none; }
};

// A text that must follow a structure holds no thoughts.
ChatForm chat_form(ToolChoice tools, ReasoningParser reasoning, Thought thought,
                   const std::optional<Tokenizer>& tokenizer);

// Splits the text of one output. One thread at a time.
class AnswerParts {
 public:
  explicit AnswerParts(const ChatForm& form) : reasoning_(form.reasoning, form.thought), calls_(form.tools) {}

  // What is known to be thought or said.
  AnswerPart push(std::string_view text);
  // No more text.
  AnswerPart finish();
  // As of ToolCallText.
  std::vector<ToolCall> take_calls() { return calls_.take_calls(); }
  int64_t calls() const { return calls_.count(); }

 private:
  ReasoningText reasoning_;
  ToolCallText calls_;
};

}  // namespace nodewright
