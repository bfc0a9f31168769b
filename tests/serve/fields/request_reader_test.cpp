// A conversation as a line of `run` and as a body of `serve`: both ask the engine for the same, and look for the same
// in its answers.
#include "serve/fields/request_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/serve/api/chat_calls.h"

namespace nodewright::test {
namespace {

constexpr int kMostForced = 16;  // calls

// A model whose prompts end within <think> unless an argument says otherwise.
class SameConversation : public testing::Test {
 protected:
  SameConversation() {
    write_chat_model(folder_, "qwen");
    folder_.write("chat_template.jinja",
                  "{{ mood }}{% if tools is not none %}{{ tools | tojson }}, <tool_call>{% endif %}"
                  "{% for m in messages %}{{ m.role }}: {{ m.content }} {% if m.tool_calls %}{{ m.tool_calls | tojson "
                  "}}{% endif %}{% endfor %}"
                  "{% if add_generation_prompt and not quiet %}<think>{% endif %}");
  }

  AskedRequest of_run(const Json& body) {
    return RequestReader(defaults(), served().config, served().tokenizer).read(RequestFields(body), 1);
  }
  AskedRequest of_serve(const Json& body) {
    const auto made = served().api.chat(body.dump());
    return std::move(made->submissions().front().asked);
  }
  RequestDefaults defaults() {
    return {
        .model = folder_.path(), .template_args = {{"mood", "calm"}}, .parsers = {.reasoning = ReasoningParser::qwen3}};
  }
  ServedCase& served() {
    if (!served_) served_.emplace(folder_.path(), 4096, defaults().parsers, defaults().template_args);
    return *served_;
  }

  void expect_same(const Json& body) {
    SCOPED_TRACE(body.dump());
    AskedRequest line = of_run(body), call = of_serve(body);
    EXPECT_EQ(line.spec.prompt, call.spec.prompt);
    EXPECT_EQ(line.spec.stop_ids, call.spec.stop_ids);
    EXPECT_EQ(line.answer.reasoning, call.answer.reasoning);
    EXPECT_EQ(line.answer.thought, call.answer.thought);
    EXPECT_EQ(line.answer.shown, call.answer.shown);
    EXPECT_EQ(line.answer.tools.form, call.answer.tools.form);
    EXPECT_EQ(line.answer.tools.names, call.answer.tools.names);
    EXPECT_EQ(line.answer.tools.names_one, call.answer.tools.names_one);
    EXPECT_EQ(line.answer.tools.parallel, call.answer.tools.parallel);
    ASSERT_EQ(line.answer.tools.structure.has_value(), call.answer.tools.structure.has_value());
    if (line.answer.tools.structure) {
      EXPECT_EQ(line.answer.tools.structure->text, call.answer.tools.structure->text);
    }
    ASSERT_EQ(line.outputs.size(), call.outputs.size());
    for (size_t k = 0; k < line.outputs.size(); ++k) {
      const ChoiceOptions &a = line.outputs[k].choice.options, &b = call.outputs[k].choice.options;
      EXPECT_EQ(a.allow != nullptr, b.allow != nullptr);
      EXPECT_EQ(a.ends != nullptr, b.ends != nullptr);
      EXPECT_EQ(a.min_tokens, b.min_tokens);
    }
  }

  ScratchFolder folder_;
  std::optional<ServedCase> served_;
};

TEST_F(SameConversation, IsAskedForByRunAndServe) {
  const Json named{{"type", "function"}, {"function", {{"name", "weather"}}}};
  const std::vector<Json> all{
      Json::object(),
      {{"chat_template_kwargs", {{"mood", "glad"}, {"quiet", true}}}},
      {{"chat_template_kwargs", {{"messages", Json::array()}, {"tools", Json::array({kWeather})}}},
       {"tools", Json::array({kWeather})}},
      {{"tools", Json::array()}},
      {{"tools", Json::array({kWeather})}},
      {{"tools", Json::array({kWeather})}, {"tool_choice", "none"}},
      {{"tools", Json::array({kWeather})}, {"tool_choice", "required"}, {"n", 2}},
      {{"tools", Json::array({kWeather})}, {"tool_choice", "required"}, {"stop", "Rome"}},
      {{"tools", Json::array({kWeather})}, {"tool_choice", named}, {"parallel_tool_calls", false}},
      {{"guided_regex", "[a-z]+"}, {"min_tokens", 2}},
      {{"stop", {"a", "b"}}, {"stop_token_ids", {7}}, {"ignore_eos", true}}};
  for (Json body : all) {
    body["messages"] = kUser;
    body["temperature"] = 0;
    body["max_tokens"] = 100;
    expect_same(body);
  }
}

TEST_F(SameConversation, OfEveryKindOfMessageIsTheSamePrompt) {
  const Json call =
      Json::parse(R"({"type":"function","function":{"name":"weather","arguments":"{\"city\": \"Rome\"}"}})");
  for (const Json& messages :
       {Json::array({{{"role", "developer"}, {"content", "Be brief."}}, kUser[0]}),
        Json::array({{{"role", "user"},
                      {"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "input_text"}, {"text", ""}}, "b"}}}}),
        Json::array({kUser[0], {{"role", "assistant"}, {"content", nullptr}}, kUser[0]}),
        Json::array({kUser[0], {{"role", "assistant"}, {"tool_calls", nullptr}, {"content", "c"}}}),
        Json::array({kUser[0], {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}}})})
    expect_same({{"messages", messages}, {"temperature", 0}, {"max_tokens", 100}});
}

TEST_F(SameConversation, BringsNoTemplateOfItsOwn) {
  const Json body{{"messages", kUser}, {"chat_template_kwargs", {{"chat_template", "{{ 1 }}"}}}};
  EXPECT_THROW(of_serve(body), ApiError);
  EXPECT_THROW(of_run(body), std::invalid_argument);
}

TEST_F(SameConversation, EndsWithItsSixteenthForcedCallInBoth) {
  const Json body{
      {"messages", kUser}, {"tools", Json::array({kWeather})}, {"tool_choice", "required"}, {"max_tokens", 3000}};
  std::string text;
  for (int i = 0; i < kMostForced + 1; ++i)
    text += "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Rome\"}}\n</tool_call>\n";
  std::vector<size_t> ends;  // counts of tokens
  for (AskedRequest asked : {of_run(body), of_serve(body)}) {
    size_t count = 0;
    for (const int32_t id : served().ids(text)) {
      ++count;
      if (!asked.outputs.front().choice.options.ends(id)) continue;
      ends.push_back(count);
      break;
    }
  }
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0], ends[1]);
}

}  // namespace
}  // namespace nodewright::test
