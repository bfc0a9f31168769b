#include "serve/tools/reasoning_text.h"

#include <utility>

#include "serve/tools/partial_word.h"

namespace nodewright {
namespace {

constexpr std::string_view kThink = "<think>", kThought = "</think>";

}  // namespace

std::optional<ReasoningParser> reasoning_parser_of(std::string_view name) {
  if (name == "none") return ReasoningParser::none;
  if (name == "deepseek_r1") return ReasoningParser::deepseek_r1;
  if (name == "qwen3") return ReasoningParser::qwen3;
  return std::nullopt;
}

ReasoningText::ReasoningText(ReasoningParser parser, Thought prompt)
    : place_(parser == ReasoningParser::none ? Place::answer : Place::start),
      thinks_without_tag_(prompt == Thought::open ||
                          (prompt == Thought::unknown && parser == ReasoningParser::deepseek_r1)) {}

AnswerPart ReasoningText::push(std::string_view text) {
  AnswerPart part;
  if (place_ == Place::answer) {
    part.content = text;
    return part;
  }
  held_ += text;
  if (place_ == Place::start) {
    const size_t first = held_.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return part;
    const std::string_view rest = std::string_view(held_).substr(first);
    if (rest.size() < kThink.size() && kThink.starts_with(rest)) return part;
    const bool has_tag = rest.starts_with(kThink);
    place_ = has_tag || thinks_without_tag_ ? Place::thinking : Place::answer;
    if (has_tag) held_.erase(0, first + kThink.size());
    if (place_ == Place::answer) part.content = std::exchange(held_, {});
  }
  if (place_ == Place::thinking) {
    const size_t end = held_.find(kThought);
    if (end == std::string::npos) {
      const size_t sure = held_.size() - begun_at_end(held_, kThought);
      part.reasoning = held_.substr(0, sure);
      held_.erase(0, sure);
    } else {
      part.reasoning = held_.substr(0, end);
      part.content = held_.substr(end + kThought.size());
      held_.clear();
      place_ = Place::answer;
    }
  }
  return part;
}

AnswerPart ReasoningText::finish() {
  AnswerPart part;
  const bool thinks = place_ == Place::thinking || (place_ == Place::start && thinks_without_tag_);
  (thinks ? part.reasoning : part.content) = std::exchange(held_, {});
  return part;
}

}  // namespace nodewright
