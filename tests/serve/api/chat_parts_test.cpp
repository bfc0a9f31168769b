// Calls of /v1/chat/completions whose answers have parts: calls of tools, found or forced, and thoughts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/serve/api/chat_calls.h"
#include "text/grammar/context_free.h"

namespace nodewright::test {
namespace {

TEST_F(ChatCalls, TaggedCallsBecomeToolCalls) {
  const std::string text =
      "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"K\\u00f6ln\"}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
  Json body{{"messages", kUser}, {"tools", Json::array({kWeather})}};
  auto made = call(body);
  std::vector<int32_t> tokens = qwen_->ids(text);
  body["ignore_eos"] = true;
  const Json choice = answer(body, text)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "I look.\n");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 2u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "weather");
  EXPECT_EQ(Json::parse(choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()),
            (Json{{"city", "K\xC3\xB6ln"}}));
  EXPECT_NE(choice["message"]["tool_calls"][0]["id"], choice["message"]["tool_calls"][1]["id"]);
  EXPECT_EQ(choice["finish_reason"], "length");  // the script ends so
  for (const size_t at_once : {1u, 5u, 1000u}) {
    const Json message = joined(stream(*qwen_, body, text, at_once));
    EXPECT_EQ(message["content"], "I look.\n");
    ASSERT_EQ(message["calls"].size(), 2u);
    EXPECT_EQ(message["calls"][1]["arguments"], R"({"city":"Rome"})");
  }
  body["parallel_tool_calls"] = false;
  EXPECT_EQ(answer(body, text)["choices"][0]["message"]["tool_calls"].size(), 1u);
  body["tool_choice"] = "none";
  EXPECT_FALSE(answer(body, text)["choices"][0]["message"].contains("tool_calls"));
}

TEST_F(ChatCalls, TheReasonIsToolCallsWhereTheModelStops) {
  Json body{{"messages", kUser}, {"tools", Json::array({kWeather})}};
  std::vector<int32_t> tokens = qwen_->ids("<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>");
  tokens.push_back(static_cast<int32_t>(qwen_->config.eos[0]));
  auto made = call(body);
  Json choice = Json::parse(FakeEngine(*made).run_all({.tokens = tokens}))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  body["stream"] = true;
  body["logprobs"] = true;
  made = call(body);
  const std::vector<Json> chunks = chunks_of(FakeEngine(*made).run_all({.tokens = tokens}));
  EXPECT_EQ(joined(chunks)["finish_reason"], "tool_calls");
  EXPECT_EQ(joined(chunks)["role"], "assistant");
  size_t scored = 0;
  for (const Json& chunk : chunks) scored += chunk["choices"][0]["logprobs"]["content"].size();
  EXPECT_EQ(scored, tokens.size());
}

TEST_F(ChatCalls, BareCallsOfLlamaBecomeToolCalls) {
  const Json body{{"messages", kUser}, {"tools", Json::array({kWeather})}};
  const std::string one = R"({"name": "weather", "parameters": {"city": "Rome {\"}"}})";
  for (const std::string& text : {one, one + "; " + one, "\n" + one + "\n"}) {
    const Json message = joined(stream(*llama_, body, text));
    EXPECT_EQ(message["calls"].size(), text.find("; ") == std::string::npos ? 1u : 2u) << text;
    EXPECT_EQ(message["content"], "") << text;
    EXPECT_EQ(message["calls"][0]["arguments"], R"({"city":"Rome {\"}"})");
  }
  for (const std::string text : {"It is sunny.", "{\"name\": \"Bob\", \"parameters\": {}}", "{\"a\": [1, {", "{]}"}) {
    const Json message = joined(stream(*llama_, body, text));
    EXPECT_EQ(message["calls"], Json::array()) << text;
    EXPECT_EQ(message["content"], text);
  }
}

// The demo's tokenizer with Mistral's special tokens after it, and a template that shows them.
void write_mistral_model(const ScratchFolder& folder) {
  Json file = Json::parse(read_text(demo_folder() / "tokenizer.json"));
  int64_t id = 2048;
  for (const char* token : {"[TOOL_CALLS]", "[ARGS]"})
    file["added_tokens"].push_back({{"id", id++},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  folder.write("tokenizer.json", file.dump());
  folder.write("chat_template.jinja", "{{ tools | tojson }}[TOOL_CALLS]{{ messages[0].content }}");
}

TEST_F(ChatCalls, CallsOfMistralAreFoundByTheirSpecialTokens) {
  const ScratchFolder folder;
  write_mistral_model(folder);
  ServedCase mistral(folder.path());
  const Json body{{"messages", kUser}, {"tools", Json::array({kWeather})}};
  for (const std::string text : {R"(I look.[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}}])",
                                 R"(I look.[TOOL_CALLS]weather[ARGS]{"city": "Rome"})"})
    for (const bool has_stop : {false, true}) {
      Json asked = body;
      if (has_stop) asked["stop"] = "STOP";
      const Json message = joined(stream(mistral, asked, text));
      EXPECT_EQ(message["content"], "I look.");
      ASSERT_EQ(message["calls"].size(), 1u) << text;
      EXPECT_EQ(message["calls"][0], (Json{{"name", "weather"}, {"arguments", R"({"city":"Rome"})"}}));
    }
  Json without = body;
  without.erase("tools");
  EXPECT_EQ(joined(stream(mistral, without, "a[TOOL_CALLS]b"))["content"], "ab");  // skipped, as special tokens are
  Json forced = body;
  forced["tool_choice"] = "required";
  EXPECT_EQ(joined(stream(mistral, forced, R"([{"name": "weather", "arguments": {"city":"Rome"}}])"))["calls"].size(),
            1u);
}

TEST_F(ChatCalls, TheParserOfCallsMayBeNamed) {
  const std::string call = R"({"name": "weather", "parameters": {"city": "Rome"}})";
  const Json body{{"messages", kUser}, {"tools", Json::array({kWeather})}};
  ServedCase llama(qwen_folder_->path(), 1024, {.tool_calls = ToolCallParser::llama3_json});
  EXPECT_EQ(joined(stream(llama, body, call))["calls"].size(), 1u);
  ServedCase silent(qwen_folder_->path(), 1024, {.tool_calls = ToolCallParser::none});
  const std::string tagged = "<tool_call>" + call + "</tool_call>";
  EXPECT_EQ(joined(stream(silent, body, tagged))["content"], tagged);
}

TEST_F(ChatCalls, ThoughtsComeApartFromTheAnswer) {
  ServedCase thinking(qwen_folder_->path(), 1024, {.reasoning = ReasoningParser::qwen3});
  const std::string text = "<think>\nHm.\n</think>\n\nYes.";
  for (const size_t at_once : {1u, 3u, 1000u}) {
    std::string reasoning, content;
    for (const Json& chunk : stream(thinking, {{"messages", kUser}}, text, at_once)) {
      const Json& delta = chunk["choices"][0]["delta"];
      reasoning += delta.value("reasoning_content", "");
      content += delta.value("content", "");
      EXPECT_FALSE(delta.empty());
    }
    EXPECT_EQ(reasoning, "\nHm.\n");
    EXPECT_EQ(content, "\n\nYes.");
  }
  const auto message_of = [&](ServedCase& served, const std::string& said) {
    const auto made = served.api.chat(Json{{"messages", kUser}}.dump());
    return Json::parse(FakeEngine(*made).run_all({.tokens = served.ids(said)}))["choices"][0]["message"];
  };
  EXPECT_EQ(message_of(thinking, text)["reasoning_content"], "\nHm.\n");
  EXPECT_EQ(message_of(thinking, text)["content"], "\n\nYes.");
  EXPECT_TRUE(message_of(thinking, "Yes.")["reasoning_content"].is_null());
  EXPECT_TRUE(message_of(thinking, "<think>Hm.")["content"].is_null());
  EXPECT_EQ(message_of(*qwen_, text)["content"], text);
  EXPECT_FALSE(message_of(*qwen_, text).contains("reasoning_content"));
  Json forced{{"messages", kUser},
              {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "string"}}}}}}}};
  ServedCase r1(qwen_folder_->path(), 1024, {.reasoning = ReasoningParser::deepseek_r1});
  EXPECT_EQ(joined(stream(r1, forced, "\"a\""))["content"], "\"a\"");
}

// As of templates that begin the thought themselves: the answer has no <think>.
TEST_F(ChatCalls, APromptThatEndsWithinThinkBeginsAThought) {
  ScratchFolder folder;
  write_chat_model(folder, "qwen");
  folder.write(
      "chat_template.jinja",
      "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<think>\n' if enable_thinking is not defined or enable_thinking else '<think></think>' }}{% endif %}");
  ServedCase thinking(folder.path(), 1024, {.reasoning = ReasoningParser::qwen3});
  const std::string text = "Hm.</think>Yes.";
  const auto message_of = [&](const Json& body) {
    const auto made = thinking.api.chat(body.dump());
    return Json::parse(FakeEngine(*made).run_all({.tokens = thinking.ids(text)}))["choices"][0]["message"];
  };
  const auto expect_thought = [&](const Json& body) {
    SCOPED_TRACE(body.dump());
    EXPECT_EQ(message_of(body)["reasoning_content"], "Hm.");
    EXPECT_EQ(message_of(body)["content"], "Yes.");
    std::string reasoning;
    const std::vector<Json> chunks = stream(thinking, body, text);
    for (const Json& chunk : chunks) reasoning += chunk["choices"][0]["delta"].value("reasoning_content", "");
    EXPECT_EQ(reasoning, "Hm.");
    EXPECT_EQ(joined(chunks)["content"], "Yes.");
  };
  expect_thought({{"messages", kUser}});
  // What the body says is no prompt, whatever it ends with.
  expect_thought({{"messages", kUser}, {"user", "</think>"}});
  expect_thought({{"messages", {kUser[0], {{"role", "assistant"}, {"content", "<think>"}}}},
                  {"add_generation_prompt", false},
                  {"continue_final_message", true}});
  for (Json body : {Json{{"messages", kUser}, {"chat_template_kwargs", {{"enable_thinking", false}}}},
                    Json{{"messages", kUser}, {"add_generation_prompt", false}, {"user", "<think>"}}}) {
    EXPECT_TRUE(message_of(body)["reasoning_content"].is_null()) << body;
    EXPECT_EQ(message_of(body)["content"], text) << body;
  }
}

TEST_F(ChatCalls, WhatOnlyLooksLikeACallStaysText) {
  const Json body{{"messages", kUser}, {"tools", Json::array({kWeather})}};
  for (const std::string text : {"a <tool_cal b", "<tool_call>not JSON</tool_call> and more", "ends with <tool",
                                 "<tool_call>{\"name\": \"weather\", \"arguments\""}) {
    const Json message = joined(stream(*qwen_, body, text));
    EXPECT_EQ(message["content"], text);
    EXPECT_EQ(message["calls"], Json::array());
  }
  const Json message = joined(stream(*qwen_, body, "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"R\"}}"));
  EXPECT_EQ(message["calls"].size(), 1u);  // the closing tag is missing
}

TEST_F(ChatCalls, AFunctionThatIsNamedHasItsArgumentsForced) {
  Json body{{"messages", kUser},
            {"tools", Json::array({kWeather})},
            {"tool_choice", {{"type", "function"}, {"function", {{"name", "weather"}}}}}};
  auto made = call(body);
  EXPECT_TRUE(FakeEngine(*made).submissions()[0].asked.outputs[0].choice.options.allow != nullptr);
  const std::string called = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Rome\"}}\n</tool_call>";
  Json choice = answer(body, called)["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"],
            (Json{{"name", "weather"}, {"arguments", R"({"city":"Rome"})"}}));
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["finish_reason"], "stop");
  body["tool_choice"] = "required";
  choice = answer(body, called)["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"city":"Rome"})");
  EXPECT_EQ(joined(stream(*qwen_, body, called + "\n" + called))["calls"].size(), 2u);
  const std::string bare = R"({"name": "weather", "parameters": {"city":"Rome"}})";
  EXPECT_EQ(joined(stream(*llama_, body, bare + "; " + bare))["calls"].size(), 2u);
  body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "integer"}}}}}};
  EXPECT_EQ(error_of([&] { call(body); }).param(), "tool_choice");
  body.erase("response_format");
  body["tools"][0]["function"]["parameters"]["properties"]["city"]["not"] = Json::object();
  EXPECT_EQ(error_of([&] { call(body); }).param(), "tool_choice");
  body["tool_choice"] = {{"type", "function"}, {"function", nullptr}};
  EXPECT_EQ(error_of([&] { call(body); }).param(), "tool_choice");
}

// The first token that the grammar of `body` does not allow in `text`, from its beginning; -1: none. Its end must be
// one.
int64_t first_denied(ServedCase& served, const Json& body, const std::string& text) {
  const auto made = served.api.chat(body.dump());
  const ChoiceOptions options = std::move(made->submissions()[0].asked.outputs[0].choice.options);
  const std::vector<int32_t> ids = served.ids(text);
  for (size_t i = 0; i <= ids.size(); ++i) {
    std::vector<uint32_t> mask(static_cast<size_t>(served.config.vocab + 31) / 32);
    options.allow(std::span(ids).first(i), mask);
    const int32_t token = i < ids.size() ? ids[i] : served.config.eos[0];
    if ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) == 0) return static_cast<int64_t>(i);
  }
  return -1;
}

TEST_F(ChatCalls, AForcedCallHasTheFormOfTheModelAndArgumentsOfTheSchema) {
  Json tree = Json::parse(R"({"type":"function","function":{"name":"plant","parameters":{"type":"object","properties":{
    "trees":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["trees"],"$defs":{"tree":{"type":"object",
    "properties":{"kind":{"type":"string","pattern":"[a-z]+"},"below":{"$ref":"#/$defs/tree"}},"required":["kind"]}}}}})");
  Json body{{"messages", kUser}, {"tools", {kWeather, tree}}, {"tool_choice", "required"}};
  const auto call_of = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  if (!has_context_free_grammars()) {
    EXPECT_EQ(error_of([&] { call(body); }).param(), "tool_choice");
    return;
  }
  const std::string weather = call_of("weather", R"({"city":"Rome"})");
  const std::string planted = call_of("plant", R"({"trees":[{"kind":"oak","below":{"kind":"fir"}}]})");
  EXPECT_EQ(first_denied(*qwen_, body, weather), -1);
  EXPECT_EQ(first_denied(*qwen_, body, planted), -1);
  EXPECT_EQ(first_denied(*qwen_, body, planted + "\n" + weather), -1);
  EXPECT_EQ(first_denied(*qwen_, body, "Hello"), 0);
  EXPECT_NE(first_denied(*qwen_, body, call_of("other", "{}")), -1);
  EXPECT_NE(first_denied(*qwen_, body, call_of("plant", R"({"city":"Rome"})")), -1);
  EXPECT_NE(first_denied(*qwen_, body, call_of("plant", R"({"trees":[{"kind":"OAK"}]})")), -1);
  EXPECT_EQ(answer(body, planted)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
            R"({"trees":[{"kind":"oak","below":{"kind":"fir"}}]})");
  body["parallel_tool_calls"] = false;
  EXPECT_EQ(first_denied(*qwen_, body, planted), -1);
  EXPECT_NE(first_denied(*qwen_, body, planted + "\n" + weather), -1);
  EXPECT_EQ(first_denied(*llama_, body, R"({"name": "plant", "parameters": {"trees":[]}})"), -1);
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "plant"}}}};
  EXPECT_NE(first_denied(*qwen_, body, weather), -1);
  EXPECT_EQ(first_denied(*qwen_, body, planted), -1);
  EXPECT_EQ(answer(body, planted)["choices"][0]["finish_reason"], "stop");
}

TEST_F(ChatCalls, ToolsThatCannotBeAreNamed) {
  const auto param = [&](const Json& more) {
    Json body{{"messages", kUser}};
    body.update(more);
    const ApiError error = error_of([&] { call(body); });
    EXPECT_EQ(error.status(), 400);
    return error.param();
  };
  for (const char* tools : {"5", "[5]", "[{}]", R"([{"type":"web_search"}])", R"([{"type":"function"}])",
                            R"([{"type":"function","function":{"name":5}}])",
                            R"([{"type":"function","function":{"name":"f","parameters":5}}])"})
    EXPECT_EQ(param({{"tools", Json::parse(tools)}}), "tools") << tools;
  EXPECT_EQ(param({{"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(param({{"tools", Json::array({kWeather})}, {"tool_choice", "sometimes"}}), "tool_choice");
  EXPECT_EQ(param({{"tools", Json::array({kWeather})}, {"tool_choice", 5}}), "tool_choice");
  EXPECT_EQ(param({{"tools", Json::array({kWeather})}, {"tool_choice", {{"function", {{"name", "other"}}}}}}),
            "tool_choice");
  EXPECT_EQ(param({{"functions", Json::array()}}), "functions");
  ServedCase demo(demo_folder());  // its template knows no tools
  EXPECT_EQ(error_of([&] {
              demo.api.chat(Json{{"messages", kUser}, {"tools", Json::array({kWeather})}}.dump());
            }).param(),
            "tools");
}

}  // namespace
}  // namespace nodewright::test
