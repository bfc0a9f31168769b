// Calls of tools in texts that are cut anywhere: each form whole, several, broken, and among other text; and the form
// that a template or a vocabulary shows.
#include "serve/tools/tool_call_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/support/test_places.h"
#include "text/chat/chat_template.h"

namespace nodewright {
namespace {

struct Split {
  std::string content;
  std::vector<ToolCall> calls;
};

Split split_in_steps(const ToolChoice& choice, const std::string& text, size_t step) {
  ToolCallText splitter(choice);
  Split split;
  for (size_t at = 0; at < text.size(); at += step) split.content += splitter.push(text.substr(at, step));
  split.content += splitter.finish();
  split.calls = splitter.take_calls();
  EXPECT_EQ(splitter.count(), std::ssize(split.calls));
  return split;
}

// "content|name arguments|name arguments", the same for every step.
std::string found_in(const ToolChoice& choice, const std::string& text) {
  std::string found;
  for (const size_t step : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{19}, text.size() + 1}) {
    const Split split = split_in_steps(choice, text, step);
    std::string now = split.content;
    for (const ToolCall& call : split.calls) now += "|" + call.name + " " + call.arguments;
    if (step == 1) found = now;
    EXPECT_EQ(found, now) << text << " in steps of " << step;
  }
  return found;
}

const ToolChoice kTagged{.form = ToolCallForm::tagged}, kMarked{.form = ToolCallForm::marked};
const ToolChoice kBare{.form = ToolCallForm::bare, .names = {"f", "g"}};

TEST(ToolCallTexts, CallsAreFoundWhereverTheTextIsCut) {
  EXPECT_EQ(found_in(kTagged,
                     "a<tool_call>{\"name\":\"f\",\"arguments\":{\"<\":1}}</tool_call>\n<tool_call>{\"name\":\"g\"}"
                     "</tool_call> b"),
            "a b|f {\"<\":1}|g {}");
  EXPECT_EQ(found_in(kBare, R"({"name":"f","parameters":{"a":"\\\"}{"}}; {"name":"g","parameters":[]})"),
            R"(|f {"a":"\\\"}{"}|g [])");
}

TEST(ToolCallTexts, TagsWithinStringsAreText) {
  for (const char* text :
       {"a </tool_call> b", "a <tool_call> b", "\\\" </tool_call>", "</tool_call></tool_call>", "\\\\"}) {
    const std::string arguments = std::string("{\"x\":\"") + text + "\"}";
    const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>";
    EXPECT_EQ(found_in(kTagged, "a" + call + call + "b"), "ab|f " + arguments + "|f " + arguments);
    EXPECT_EQ(found_in(kTagged, call.substr(0, call.rfind('<'))), "|f " + arguments);  // without the last tag
  }
  // What is no JSON ends with the first tag.
  for (const char* text : {"{\"name\": \"f\", \"arguments\": {\"x\": \"a}}", "a \" b", "{\"x\n"}) {
    const std::string broken = std::string("<tool_call>") + text + "</tool_call>";
    EXPECT_EQ(found_in(kTagged, broken + " b <tool_call>{\"name\":\"f\"}</tool_call>"), broken + " b |f {}");
  }
}

TEST(ToolCallTexts, ArgumentsAreAlwaysJsonAsTheModelWroteThem) {
  for (const auto& [written, handed] : {std::pair<const char*, const char*>{"null", "{}"},
                                        {"{\"a\": 123456789012345678901234567890, \"b\": 1E400, \"c\": 1.50}",
                                         "{\"a\":123456789012345678901234567890,\"b\":1E400,\"c\":1.50}"},
                                        {R"("{\"a\": 1}")", "{\"a\": 1}"},
                                        {R"("hello")", R"("hello")"},
                                        {R"("")", "{}"},
                                        {"[1]", "[1]"},
                                        {"3", "3"}})
    EXPECT_EQ(found_in(kTagged, std::string(R"(<tool_call>{"name":"f","arguments":)") + written + "}</tool_call>"),
              std::string("|f ") + handed);
}

TEST(ToolCallTexts, APythonTagBeforeACallOfLlamaIsNoText) {
  EXPECT_EQ(found_in(kBare, R"(<|python_tag|>{"name": "f", "parameters": {"a": 1}})"), R"(|f {"a":1})");
  EXPECT_EQ(found_in(kBare, R"(<|python_tag|> {"name":"f","parameters":{}}; {"name":"g","parameters":{}})"),
            "|f {}|g {}");
  for (const std::string text :
       {"<|python_tag|>print(1)", "<|python_tag|>", "<|python", "<b>", "{\"name\":\"other\",\"parameters\":{}}"})
    EXPECT_EQ(found_in(kBare, text), text);
}

TEST(ToolCallTexts, MistralsListOfCallsIsFoundBehindItsMark) {
  EXPECT_EQ(
      found_in(kMarked, R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": "[}"}}, {"name": "g", "arguments": {}}])"),
      R"(|f {"a":"[}"}|g {})");
  EXPECT_EQ(found_in(kMarked, R"(I look.[TOOL_CALLS][{"name":"f","arguments":{},"id":"abcdefghi"}] )"), "I look.|f {}");
  EXPECT_EQ(found_in(kMarked, R"([TOOL_CALLS][{"name":"f","arguments":"{\"a\": 1}"}])"), R"(|f {"a": 1})");
}

TEST(ToolCallTexts, MistralsNamedCallsAreFoundEachBehindItsMark) {
  EXPECT_EQ(found_in(kMarked, R"([TOOL_CALLS]f[ARGS]{"a": {"b": [1]}}[TOOL_CALLS]g[ARGS]{})"),
            R"(|f {"a":{"b":[1]}}|g {})");
  EXPECT_EQ(found_in(kMarked, R"(Well.[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"a": 1})"), R"(Well.|f {"a":1})");
  EXPECT_EQ(found_in(kMarked, R"([TOOL_CALLS]f{"a": 1} done)"), R"( done|f {"a":1})");
}

TEST(ToolCallTexts, WhatIsNoCallOfMistralStaysText) {
  for (const std::string text :
       {"no call", "[TOOL_CALL", "a [TOOL_CALLS] and\nmore", "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS][{\"name\": \"f\"}]",
        "[TOOL_CALLS][{\"name\":\"f\",\"arg", "[TOOL_CALLS]f[ARGS]{a}", "[TOOL_CALLS][1]", "[TOOL_CALLS][ARGS]{}"})
    EXPECT_EQ(found_in(kMarked, text), text);
  EXPECT_EQ(found_in(kMarked, "[TOOL_CALLS]" + std::string(300, 'x') + "{}"),
            "[TOOL_CALLS]" + std::string(300, 'x') + "{}");
}

TEST(ToolCallTexts, WhatIsLeftOfACallBehindWholeOnesIsDropped) {
  EXPECT_EQ(found_in(kTagged, "<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"na"), "|f {}");
  EXPECT_EQ(found_in(kTagged, "<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_"), "|f {}");
  EXPECT_EQ(found_in(kTagged, "<tool_call>{\"name\":\"f\"}</tool_call> and <tool_"), " and <tool_|f {}");
  EXPECT_EQ(found_in(kBare, R"({"name":"f","parameters":{}}; {"name":)"), "|f {}");
  EXPECT_EQ(found_in(kMarked, R"([TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[ARGS]{"a)"), "|f {}");
  ToolChoice listed = kBare;
  listed.form = ToolCallForm::listed;
  EXPECT_EQ(found_in(listed, R"([{"name": "f", "arguments": {"a":1}}, {"name": "g", "arguments": {}}])"),
            R"(|f {"a":1}|g {})");
  EXPECT_EQ(found_in(listed, R"([{"name": "f", "arguments": {}}, {"name")"), "|f {}");
  EXPECT_EQ(found_in(listed, R"([{"name": "f", "arg)"), R"([{"name": "f", "arg)");
}

TEST(ToolCallTexts, IdsAreThoseThatTheTemplatesTake) {
  const Split split = split_in_steps(kMarked, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{}", 5);
  ASSERT_EQ(split.calls.size(), 2u);
  EXPECT_NE(split.calls[0].id, split.calls[1].id);
  EXPECT_EQ(split.calls[0].id.size(), 9u);
  EXPECT_EQ(split.calls[0].id.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_TRUE(split_in_steps(kTagged, "<tool_call>{\"name\":\"f\"}</tool_call>", 5).calls[0].id.starts_with("call_"));
}

TEST(ToolCallTexts, OneCallIsTakenWhereTheRequestWantsNoMore) {
  ToolChoice one = kMarked;
  one.parallel = false;
  EXPECT_EQ(found_in(one, R"([TOOL_CALLS][{"name":"f","arguments":{}},{"name":"g","arguments":{}}])"), "|f {}");
}

// Whatever a model writes: the same content and calls wherever it is cut, and no letter of a text without calls is
// lost.
TEST(ToolCallTexts, RandomTextsGiveTheSameInEveryStep) {
  const std::vector<std::string> pieces = {"<tool_call>",
                                           "</tool_call>",
                                           "[TOOL_CALLS]",
                                           "[ARGS]",
                                           "[CALL_ID]",
                                           "<|python_tag|>",
                                           "{\"name\":\"f\",\"arguments\":{}}",
                                           "{\"name\":\"f\",\"parameters\":{\"a\":\"}\"}}",
                                           "f",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           "{}",
                                           "\"",
                                           "\\",
                                           ",",
                                           ";",
                                           " ",
                                           "\n",
                                           "<tool",
                                           "[TOOL",
                                           "\xC3\xA9"};
  std::mt19937 random(11);
  int64_t found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t i = random() % 9; i > 0; --i) text += pieces[random() % pieces.size()];
    for (const ToolChoice* choice : {&kTagged, &kBare, &kMarked}) {
      found_in(*choice, text);
      const Split split = split_in_steps(*choice, text, text.size() + 1);
      EXPECT_TRUE(!split.calls.empty() || split.content == text) << text << "\n" << split.content;
      found += std::ssize(split.calls);
    }
  }
  EXPECT_GT(found, 100);
}

TEST(ToolCallForms, ATemplateOrAVocabularyShowsThem) {
  const std::optional<Tokenizer> none;
  // What stands before a call in the conversation, or before the tools.
  const auto form = [&](const std::string& written, ToolCallParser parser = ToolCallParser::automatic) {
    const std::string messages = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}";
    const ChatTemplate calls(messages + written + "{{ c.function | tojson }}{% endfor %}{% endfor %}", "test");
    const ChatTemplate tools(
        "{% if tools %}" + written + "{{ tools | tojson }}{% endif %}" + messages + "{% endfor %}{% endfor %}", "test");
    const ChatTemplate comment("{# " + written + " #}" + messages + "{{ c.function | tojson }}{% endfor %}{% endfor %}",
                               "test");
    const auto of = [&](const ChatTemplate& made) {
      return tool_call_form_of({.shape = &made.shape(), .tokenizer = none, .parser = parser});
    };
    EXPECT_EQ(of(calls), of(tools)) << written;
    if (parser == ToolCallParser::automatic) {
      EXPECT_EQ(of(comment), ToolCallForm::none) << written;
    }
    return of(calls);
  };
  EXPECT_EQ(form("<tool_call>"), ToolCallForm::tagged);
  EXPECT_EQ(form("<tool_call>\n<function=f>"), ToolCallForm::none);
  EXPECT_EQ(form("[TOOL_CALLS]"), ToolCallForm::marked);
  EXPECT_EQ(form("<|python_tag|>"), ToolCallForm::bare);
  EXPECT_EQ(form("\"parameters\": "), ToolCallForm::bare);
  EXPECT_EQ(form("-"), ToolCallForm::none);
  EXPECT_EQ(form("<tool_call>", ToolCallParser::none), ToolCallForm::none);
  EXPECT_EQ(form("-", ToolCallParser::hermes), ToolCallForm::tagged);
  EXPECT_EQ(form("-", ToolCallParser::llama3_json), ToolCallForm::bare);
  EXPECT_EQ(form("-", ToolCallParser::mistral), ToolCallForm::marked);
  for (const char* name : {"auto", "hermes", "llama3_json", "mistral", "none"})
    EXPECT_TRUE(tool_call_parser_of(name)) << name;
  EXPECT_FALSE(tool_call_parser_of("pythonic"));
}

}  // namespace
}  // namespace nodewright
