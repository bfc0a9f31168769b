// What a model thinks before it answers, between <think> and </think>, apart from its answer; found while it streams.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nodewright {

// By vLLM's names. deepseek_r1: the text begins with thinking, whether <think> is there or the prompt has it, and where
// </think> is missing there is nothing else, but where the prompt ends after a thought. qwen3: only where the text, or
// the end of the prompt, has <think>.
enum class ReasoningParser : uint8_t { none, deepseek_r1, qwen3 };
// Null where no parser is called so: none, deepseek_r1, qwen3.
std::optional<ReasoningParser> reasoning_parser_of(std::string_view name);

// Where an answer begins, as its prompt ends: within a thought, after one, or as the parser has it.
enum class Thought : uint8_t { unknown, open, closed };

struct AnswerPart {
  std::string reasoning, content;
};

// Splits the text of one output. One thread at a time.
class ReasoningText {
 public:
  ReasoningText(ReasoningParser parser, Thought prompt);

  AnswerPart push(std::string_view text);
  // No more text.
  AnswerPart finish();

 private:
  enum class Place : uint8_t { start, thinking, answer };

  Place place_;
  bool thinks_without_tag_;
  std::string held_;
};

}  // namespace nodewright
