// Answers that must call a tool: how many calls they may have, and what max_tokens leaves of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "serve/tools/tool_call_text.h"
#include "tests/serve/api/fake_engine.h"
#include "text/grammar/context_free.h"

namespace nodewright::test {
namespace {

const Json kSet =
    Json::parse(R"({"type":"function","function":{"name":"set","parameters":{"type":"object","properties":{
    "on":{"type":"boolean"}},"required":["on"]}}})");
// Recursive: a context-free grammar.
const Json kNest =
    Json::parse(R"({"type":"function","function":{"name":"nest","parameters":{"type":"object","properties":{
    "in":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"object","properties":{"in":{"$ref":"#/$defs/a"}}}}}}})");
constexpr int kMost = 16;

struct Written {
  const char* model;
  std::string open, close, separator;
};
const Written kQwen{"qwen", "<tool_call>\n{\"name\": \"set\", \"arguments\": ", "}\n</tool_call>", "\n"};
const Written kLlama{"llama3", "{\"name\": \"set\", \"parameters\": ", "}", "; "};

std::string calls_of(const Written& written, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i == 0 ? "" : written.separator) + written.open + "{\"on\":true}" + written.close;
  return text;
}

TEST(ForcedCalls, AreSixteenAtMost) {
  std::vector<Json> tools{Json::array({kSet})};
  if (has_context_free_grammars()) tools.push_back(Json::array({kSet, kNest}));
  for (const Written& written : {kQwen, kLlama}) {
    ScratchFolder folder;
    write_chat_model(folder, written.model);
    ServedCase served(folder.path(), 4096);
    for (const Json& each : tools) {
      SCOPED_TRACE(std::string(written.model) + " " + std::to_string(each.size()));
      Json body{{"messages", Json::parse(R"([{"role":"user","content":"Hello"}])")},
                {"tools", each},
                {"n", 2},
                {"max_tokens", 3000},
                {"tool_choice", "required"}};
      const auto answer_to = [&](int calls) {
        const auto made = served.api.chat(body.dump());
        return Json::parse(FakeEngine(*made).run_all({.tokens = served.ids(calls_of(written, calls))}));
      };
      const Json most = answer_to(kMost + 4);
      for (const Json& choice : most["choices"]) {
        EXPECT_EQ(choice["message"]["tool_calls"].size(), static_cast<size_t>(kMost));
        EXPECT_EQ(choice["message"]["content"], nullptr);
        EXPECT_EQ(choice["finish_reason"], "tool_calls");
      }
      const Json few = answer_to(kMost - 1)["choices"][0];  // the script's end is a limit of tokens
      EXPECT_EQ(few["message"]["tool_calls"].size(), static_cast<size_t>(kMost - 1));
      EXPECT_EQ(few["finish_reason"], "length");
    }
  }
}

struct Cut {
  ToolCallForm form;
  std::string first, second, third;  // calls, with what stands before them
};
const std::vector<Cut> kCuts = {
    {ToolCallForm::tagged, "<tool_call>\n{\"name\":\"set\",\"arguments\":{\"on\":true}}\n</tool_call>",
     "\n<tool_call>\n{\"name\":\"set\",\"arguments\":{\"on\":false}}\n</tool_call>",
     "\n<tool_call>\n{\"name\":\"set\",\"arguments\":{\"o"},
    {ToolCallForm::bare, R"({"name":"set","parameters":{"on":true}})", R"(; {"name":"set","parameters":{"on":false}})",
     R"(; {"name":"set","parameters":{"o)"},
    {ToolCallForm::listed, R"([{"name":"set","parameters":{"on":true}})",
     R"(, {"name":"set","parameters":{"on":false}})", R"(, {"name":"set","parameters":{"o)"}};

TEST(ForcedCalls, ThatAreWholeStayWhereMaxTokensCutsTheNext) {
  for (const Cut& cut : kCuts)
    for (size_t left = 0; left <= cut.third.size(); ++left)
      for (const size_t step : {size_t{1}, size_t{7}, size_t{1000}}) {
        const std::string all = cut.first + cut.second + cut.third.substr(0, left);
        ToolCallText text({.form = cut.form, .names = {"set"}});
        std::string content;
        for (size_t at = 0; at < all.size(); at += step) content += text.push(all.substr(at, step));
        EXPECT_EQ(content + text.finish(), "") << all;
        const std::vector<ToolCall> calls = text.take_calls();
        ASSERT_EQ(calls.size(), 2u) << all;
        EXPECT_EQ(calls[0].arguments, R"({"on":true})");
        EXPECT_EQ(calls[1].arguments, R"({"on":false})");
      }
}

TEST(ForcedCalls, OfWhichNoneIsWholeAreText) {
  for (const Cut& cut : kCuts)
    for (const size_t left : {size_t{1}, cut.first.size() / 2}) {
      const std::string all = cut.first.substr(0, left);
      ToolCallText text({.form = cut.form, .names = {"set"}});
      const std::string content = text.push(all);
      EXPECT_EQ(content + text.finish(), all);
      EXPECT_TRUE(text.take_calls().empty());
    }
}

TEST(ForcedCalls, OfAListAreSentAsTheyBecomeWhole) {
  ToolCallText text({.form = ToolCallForm::listed, .names = {"set"}});
  EXPECT_EQ(text.push(kCuts[2].first), "");
  EXPECT_EQ(text.take_calls().size(), 1u);
  EXPECT_EQ(text.push(kCuts[2].second + "]"), "");
  EXPECT_EQ(text.take_calls().size(), 1u);
  EXPECT_EQ(text.finish(), "");
}

TEST(ForcedCalls, OfAFunctionWhoseParametersAreAtFaultNameIt) {
  ScratchFolder folder;
  write_chat_model(folder, "qwen");
  ServedCase served(folder.path(), 4096);
  Json wrong = kSet;
  wrong["function"]["name"] = "wrong";
  wrong["function"]["parameters"] = Json::parse(R"({"type":"object","properties":{"a":{"not":{}}}})");
  Json body{{"messages", Json::parse(R"([{"role":"user","content":"Hello"}])")},
            {"tools", Json::array({kSet, wrong})},
            {"tool_choice", "required"}};
  try {
    served.api.chat(body.dump());
    FAIL() << "nothing was refused";
  } catch (const ApiError& error) {
    EXPECT_NE(error.message().find("the parameters of \"wrong\": "), std::string::npos) << error.message();
  }
}

TEST(ForcedCalls, ThatAreCutEndWithLengthAndTheCallsThatAreWhole) {
  ScratchFolder folder;
  write_chat_model(folder, "qwen");
  ServedCase served(folder.path(), 4096);
  Json body{{"messages", Json::parse(R"([{"role":"user","content":"Hello"}])")},
            {"tools", Json::array({kSet})},
            {"tool_choice", "required"}};
  const std::vector<int32_t> ids = served.ids(calls_of(kQwen, 3));
  body["max_tokens"] = ids.size() - 5;
  const auto made = served.api.chat(body.dump());
  const Json choice = Json::parse(FakeEngine(*made).run_all({.tokens = ids}))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 2u);
}

}  // namespace
}  // namespace nodewright::test
