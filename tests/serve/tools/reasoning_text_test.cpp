// Thoughts apart from answers, in texts that are cut anywhere.
#include <gtest/gtest.h>

#include <string>

#include "serve/tools/answer_parts.h"

namespace nodewright {
namespace {

// "reasoning|content", the same for every step.
std::string parts_of(ReasoningParser parser, const std::string& text, Thought begun = Thought::unknown) {
  std::string found;
  for (const size_t step : {size_t{1}, size_t{2}, size_t{5}, text.size() + 1}) {
    ReasoningText splitter(parser, begun);
    AnswerPart whole;
    const auto add = [&](const AnswerPart& part) {
      whole.reasoning += part.reasoning;
      whole.content += part.content;
    };
    for (size_t at = 0; at < text.size(); at += step) add(splitter.push(text.substr(at, step)));
    add(splitter.finish());
    const std::string now = whole.reasoning + "|" + whole.content;
    if (step == 1) found = now;
    EXPECT_EQ(found, now) << text << " in steps of " << step;
  }
  return found;
}

TEST(ReasoningTexts, WhatStandsBetweenTheTagsIsThought) {
  for (const ReasoningParser parser : {ReasoningParser::qwen3, ReasoningParser::deepseek_r1}) {
    EXPECT_EQ(parts_of(parser, "<think>\na < b </thin\n</think>\n\nYes."), "\na < b </thin\n|\n\nYes.");
    EXPECT_EQ(parts_of(parser, "\n<think>a</think>b</think><think>c"), "a|b</think><think>c");
    EXPECT_EQ(parts_of(parser, "<think></think>b"), "|b");
    EXPECT_EQ(parts_of(parser, "<think>never ends </th"), "never ends </th|");
    EXPECT_EQ(parts_of(parser, ""), "|");
  }
  EXPECT_EQ(parts_of(ReasoningParser::none, "<think>a</think>b"), "|<think>a</think>b");
}

TEST(ReasoningTexts, WithoutATagTheParsersDiffer) {
  EXPECT_EQ(parts_of(ReasoningParser::qwen3, "Yes. <think>"), "|Yes. <think>");
  EXPECT_EQ(parts_of(ReasoningParser::qwen3, "a</think>b"), "|a</think>b");
  EXPECT_EQ(parts_of(ReasoningParser::deepseek_r1, "a</think>b"), "a|b");
  EXPECT_EQ(parts_of(ReasoningParser::deepseek_r1, " <thin"), " <thin|");
}

TEST(ReasoningTexts, APromptMayHaveBegunTheThought) {
  EXPECT_EQ(parts_of(ReasoningParser::qwen3, "a</think>b", Thought::open), "a|b");
  EXPECT_EQ(parts_of(ReasoningParser::deepseek_r1, "Yes.", Thought::closed), "|Yes.");
  EXPECT_EQ(parts_of(ReasoningParser::qwen3, "Yes.", Thought::closed), "|Yes.");
  const std::optional<Tokenizer> none;
  EXPECT_TRUE(chat_form({}, ReasoningParser::none, Thought::open, none).is_plain());
  EXPECT_TRUE(chat_form({.structure = TextStructure{}}, ReasoningParser::qwen3, Thought::open, none).is_plain());
}

TEST(ReasoningTexts, CallsAreLookedForInTheAnswerAlone) {
  const std::string call = "<tool_call>{\"name\":\"f\"}</tool_call>";
  AnswerParts parts(ChatForm{.tools = {.form = ToolCallForm::tagged}, .reasoning = ReasoningParser::qwen3});
  AnswerPart part = parts.push("<think>" + call + "</think>" + call);
  const AnswerPart rest = parts.finish();
  EXPECT_EQ(part.reasoning + rest.reasoning, call);
  EXPECT_EQ(part.content + rest.content, "");
  EXPECT_EQ(parts.calls(), 1);
}

}  // namespace
}  // namespace nodewright
