// Calls of /v1/chat/completions: prompts by the template, streams, bodies, log probabilities, tools.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/serve/api/fake_engine.h"
#include "text/grammar/context_free.h"

namespace nodewright::test {
namespace {

const Json kWeather = Json::parse(
    R"({"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},
    "required":["city"]}}})");
const Json kUser = Json::parse(R"([{"role":"user","content":"Hello"}])");

class ChatCalls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    qwen_folder_ = new ScratchFolder;
    llama_folder_ = new ScratchFolder;
    write_chat_model(*qwen_folder_, "qwen");
    write_chat_model(*llama_folder_, "llama3");
    qwen_ = new ServedCase(qwen_folder_->path());
    llama_ = new ServedCase(llama_folder_->path(), 4096);
  }
  static void TearDownTestSuite() {
    delete std::exchange(qwen_, nullptr);
    delete std::exchange(llama_, nullptr);
    delete std::exchange(qwen_folder_, nullptr);
    delete std::exchange(llama_folder_, nullptr);
  }
  static std::unique_ptr<ApiCall> call(const Json& body) { return qwen_->api.chat(body.dump()); }
  static Json answer(const Json& body, const std::string& text) {
    const auto made = call(body);
    return Json::parse(FakeEngine(*made).run_all({.tokens = qwen_->ids(text)}));
  }
  static std::vector<Json> stream(ServedCase& served, Json body, const std::string& text, size_t at_once = 1) {
    body["stream"] = true;
    const auto made = served.api.chat(body.dump());
    return chunks_of(FakeEngine(*made).run_all({.tokens = served.ids(text), .at_once = at_once}));
  }
  static std::string prompt_of(ServedCase& served, const Json& body) {
    const auto made = served.api.chat(body.dump());
    return served.tokenizer->decode(FakeEngine(*made).submissions()[0].asked.spec.prompt, false);
  }
  static ScratchFolder *qwen_folder_, *llama_folder_;
  static ServedCase *qwen_, *llama_;
};
ScratchFolder *ChatCalls::qwen_folder_ = nullptr, *ChatCalls::llama_folder_ = nullptr;
ServedCase *ChatCalls::qwen_ = nullptr, *ChatCalls::llama_ = nullptr;

// What OpenAI's client makes of a stream's deltas.
Json joined(const std::vector<Json>& chunks) {
  Json message{{"role", ""}, {"content", ""}, {"calls", Json::array()}, {"finish_reason", nullptr}};
  for (const Json& chunk : chunks) {
    if (chunk["choices"].empty()) continue;
    const Json& choice = chunk["choices"][0];
    const Json& delta = choice["delta"];
    if (delta.contains("role")) message["role"] = message["role"].get<std::string>() + delta["role"].get<std::string>();
    if (delta.contains("content"))
      message["content"] = message["content"].get<std::string>() + delta["content"].get<std::string>();
    if (delta.contains("tool_calls"))
      for (const Json& part : delta["tool_calls"]) {
        EXPECT_EQ(part["index"], message["calls"].size());
        EXPECT_EQ(part["type"], "function");
        EXPECT_FALSE(part["id"].get<std::string>().empty());
        message["calls"].push_back(part["function"]);
      }
    if (!choice["finish_reason"].is_null()) message["finish_reason"] = choice["finish_reason"];
  }
  return message;
}

TEST_F(ChatCalls, ABodyHasTheShapeOfOpenAiAndTheContextIsItsLimit) {
  const auto made = call({{"model", "demo"}, {"messages", kUser}});
  EXPECT_TRUE(made->id().starts_with("chatcmpl-"));
  FakeEngine engine(*made);
  const RequestSpec& spec = engine.submissions()[0].asked.spec;
  EXPECT_EQ(spec.max_tokens, 1024 - std::ssize(spec.prompt));
  EXPECT_EQ(qwen_->tokenizer->decode(spec.prompt, false), "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  const Json body = Json::parse(engine.run_all({.tokens = qwen_->ids("Good day")}));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"],
            (Json{{"role", "assistant"}, {"content", "Good day"}, {"refusal", nullptr}}));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], spec.prompt.size());
}

TEST_F(ChatCalls, TheRoleComesWithTheFirstTokenAndEachTokenIsAnEvent) {
  const std::vector<Json> chunks =
      stream(*qwen_, {{"messages", kUser}, {"stream_options", {{"include_usage", true}}}}, "Good day to you");
  ASSERT_EQ(chunks.size(), qwen_->ids("Good day to you").size() + 1);
  EXPECT_EQ(chunks[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_FALSE(chunks[0]["choices"][0]["delta"]["content"].get<std::string>().empty());
  EXPECT_FALSE(chunks[1]["choices"][0]["delta"].contains("role"));
  for (const Json& chunk : chunks) EXPECT_EQ(chunk["object"], "chat.completion.chunk");
  EXPECT_EQ(joined(chunks)["content"], "Good day to you");
  EXPECT_EQ(joined(chunks)["finish_reason"], "length");
  EXPECT_EQ(chunks.back()["choices"], Json::array());
  EXPECT_GT(chunks.back()["usage"]["completion_tokens"], 0);
}

TEST_F(ChatCalls, LogprobsHaveTheChatShape) {
  Json body{{"messages", kUser}, {"logprobs", true}, {"top_logprobs", 2}};
  const Json content = answer(body, "Good")["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), qwen_->ids("Good").size());
  EXPECT_EQ(content[0]["token"], "G");
  EXPECT_EQ(content[0]["bytes"], Json::array({71}));
  EXPECT_EQ(content[0]["logprob"], -0.25);
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][0]["token"], "G");
  const std::vector<Json> chunks = stream(*qwen_, body, "Good");
  EXPECT_EQ(chunks[0]["choices"][0]["logprobs"]["content"].size(), 1u);
  body.erase("top_logprobs");
  EXPECT_EQ(answer(body, "Good")["choices"][0]["logprobs"]["content"][0]["top_logprobs"], Json::array());
  body["logprobs"] = false;
  EXPECT_TRUE(answer(body, "Good")["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(error_of([&] { call({{"messages", kUser}, {"top_logprobs", 3}}); }).param(), "top_logprobs");
}

TEST_F(ChatCalls, PartsOfTextAreJoinedAndOthersRefused) {
  Json body{{"messages", Json::parse(R"([{"role":"user","content":[{"type":"text","text":"One"},{"type":"text",
    "text":"Two"}]}])")}};
  EXPECT_EQ(prompt_of(*qwen_, body), "<|im_start|>user\nOne\nTwo<|im_end|>\n<|im_start|>assistant\n");
  body["messages"][0]["content"][1] = Json::parse(R"({"type":"image_url","image_url":{"url":"data:"}})");
  const ApiError error = error_of([&] { call(body); });
  EXPECT_EQ(error.param(), "messages");
  EXPECT_NE(error.message().find("image_url"), std::string::npos);
}

TEST_F(ChatCalls, MessagesThatCannotBeAreNamed) {
  for (const char* messages : {"[]", "5", "{}", "[5]", "[{}]", R"([{"role":5,"content":"a"}])", R"([{"role":"user"}])",
                               R"([{"role":"user","content":5}])", R"([{"role":"user","content":[5]}])",
                               R"([{"role":"user","content":[{"type":"text"}]}])",
                               R"([{"role":"assistant","tool_calls":5}])", R"([{"role":"assistant","tool_calls":[5]}])",
                               R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1"}}]}])"}) {
    const ApiError error = error_of([&] { call({{"messages", Json::parse(messages)}}); });
    EXPECT_EQ(error.status(), 400) << messages;
    EXPECT_EQ(error.param(), "messages") << messages << ": " << error.message();
  }
  EXPECT_EQ(error_of([&] { call(Json::object()); }).param(), "messages");
}

TEST_F(ChatCalls, ADeveloperIsASystemForTemplatesThatDoNotKnowHim) {
  const Json body{
      {"messages", Json::parse(R"([{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}])")}};
  EXPECT_TRUE(prompt_of(*qwen_, body).starts_with("<|im_start|>system\nBe brief.<|im_end|>"));
}

TEST_F(ChatCalls, TheLastMessageIsContinuedAndTheTemplateTakesVariables) {
  Json body{{"messages", Json::parse(R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Well, "}])")},
            {"add_generation_prompt", false},
            {"continue_final_message", true}};
  const std::string prompt = prompt_of(*qwen_, body);
  EXPECT_TRUE(prompt.ends_with("Well, ") || prompt.ends_with("Well,")) << prompt;
  body["add_generation_prompt"] = nullptr;
  EXPECT_EQ(error_of([&] { call(body); }).param(), "continue_final_message");
  const Json thinking{{"messages", kUser}, {"chat_template_kwargs", {{"enable_thinking", false}}}};
  EXPECT_TRUE(prompt_of(*qwen_, thinking).ends_with("<think>\n\n</think>\n\n"));
  EXPECT_EQ(error_of([&] {
              call({{"messages", kUser}, {"chat_template_kwargs", 5}});
            }).param(),
            "chat_template_kwargs");
}

TEST_F(ChatCalls, ArgumentsOfEarlierCallsArePrintedAsJson) {
  const Json messages = Json::parse(R"([{"role":"user","content":"Weather?"},{"role":"assistant","content":null,
    "tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Rome\"}"}}]},
    {"role":"tool","tool_call_id":"call_1","content":"sunny"}])");
  const std::string prompt = prompt_of(*llama_, {{"messages", messages}, {"tools", Json::array({kWeather})}});
  EXPECT_NE(prompt.find(R"("parameters": {"city": "Rome"})"), std::string::npos) << prompt;
}

TEST_F(ChatCalls, AModelWithoutATemplateSaysSo) {
  const ScratchFolder folder;
  folder.write("tokenizer.json", read_text(demo_folder() / "tokenizer.json"));
  ServedCase served(folder.path());
  const ApiError error = error_of([&] { served.api.chat(Json{{"messages", kUser}}.dump()); });
  EXPECT_EQ(error.status(), 400);
  EXPECT_EQ(error.param(), "messages");
  EXPECT_NE(error.message().find("chat template"), std::string::npos);
  EXPECT_NE(error.message().find("chat_template.jinja"), std::string::npos);
}

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

TEST(ToolCallTexts, CallsAreFoundWhereverTheTextIsCut) {
  const std::string tagged =
      "a<tool_call>{\"name\":\"f\",\"arguments\":{\"<\":1}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call> b";
  const std::string bare = R"({"name":"f","parameters":{"a":"\\\"}{"}}; {"name":"g","parameters":[]})";
  for (size_t step = 1; step < 40; ++step) {
    ToolCallText tags({.form = ToolCallForm::tagged}), braces({.form = ToolCallForm::bare, .names = {"f", "g"}});
    std::string content, rest;
    for (size_t at = 0; at < tagged.size(); at += step) content += tags.push(tagged.substr(at, step));
    for (size_t at = 0; at < bare.size(); at += step) rest += braces.push(bare.substr(at, step));
    EXPECT_EQ(content + tags.finish(), "a b") << step;
    EXPECT_EQ(rest + braces.finish(), "") << step;
    for (ToolCallText* text : {&tags, &braces}) {
      const std::vector<ToolCall> calls = text->take_calls();
      ASSERT_EQ(calls.size(), 2u) << step;
      EXPECT_EQ(calls[0].name, "f");
      EXPECT_EQ(calls[1].name, "g");
    }
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
