// Answers that must call a tool: how many calls they may have, and what max_tokens leaves of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "serve/api/answer/tool_calls.h"
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

// Whether a token may follow the text; no value where the text itself may not be. `end`: the end may.
struct Following {
  bool allowed = false, ends = false, goes_on = false;
};
Following following(ServedCase& served, const Json& body, const std::string& text) {
  const auto made = served.api.chat(body.dump());
  const std::vector<Submission> submissions = made->submissions();  // which gives them once
  const AskedRequest& asked = submissions[0].asked;
  const ChoiceOptions& options = asked.outputs[0].choice.options;
  const std::vector<int32_t> ids = served.ids(text);
  Following found{.allowed = true};
  for (size_t i = 0; i <= ids.size() && found.allowed; ++i) {
    std::vector<uint32_t> mask(static_cast<size_t>(served.config.vocab + 31) / 32);
    options.allow(std::span(ids).first(i), mask);
    const auto is_set = [&](int32_t token) { return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0; };
    if (i < ids.size()) {
      found.allowed = is_set(ids[i]);
      continue;
    }
    for (int32_t token = 0; token < served.config.vocab; ++token)
      if (is_set(token)) (std::ranges::count(asked.spec.stop_ids, token) > 0 ? found.ends : found.goes_on) = true;
  }
  return found;
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
                {"tool_choice", "required"}};
      const Following few = following(served, body, calls_of(written, kMost - 1));
      EXPECT_TRUE(few.allowed && few.ends && few.goes_on);
      const Following most = following(served, body, calls_of(written, kMost));
      EXPECT_TRUE(most.allowed && most.ends && !most.goes_on);
      EXPECT_FALSE(following(served, body, calls_of(written, kMost + 1)).allowed);
      body["parallel_tool_calls"] = false;
      const Following one = following(served, body, calls_of(written, 1));
      EXPECT_TRUE(one.allowed && one.ends && !one.goes_on);
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
