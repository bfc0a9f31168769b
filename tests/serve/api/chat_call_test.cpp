// Calls of /v1/chat/completions: prompts by the template, streams, bodies, log probabilities.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/serve/api/chat_calls.h"
#include "tests/support/error_text.h"

namespace nodewright::test {
namespace {

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
  for (const char* messages :
       {"[]", "5", "{}", "[5]", "[{}]", R"([{"role":5,"content":"a"}])", R"([{"role":"user"}])",
        R"([{"role":"user","content":5}])", R"([{"role":"user","content":[5]}])",
        R"([{"role":"user","content":[{"type":"text"}]}])", R"([{"role":"assistant","tool_calls":5}])",
        R"([{"role":"assistant","tool_calls":[5]}])"}) {
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

TEST_F(ChatCalls, WhatClientsHandBackIsTaken) {
  for (const char* message :
       {R"({"role":"assistant","content":[{"type":"refusal","refusal":"no"}]})",
        R"({"role":"assistant","content":null,"refusal":"no","audio":null,"tool_calls":[]})",
        R"({"role":"tool","tool_call_id":"c","content":null})", R"({"role":"user","content":null})",
        R"({"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"weather",
          "arguments":"{\"city\": \"Ro"}}]})"}) {
    const Json messages{{{"role", "user"}, {"content", "Hi"}}, Json::parse(message)};
    EXPECT_NE(prompt_of(*qwen_, {{"messages", messages}}), "") << message;
  }
  const Json refused{{{"role", "user"}, {"content", "Hi"}},
                     Json::parse(R"({"role":"assistant","content":null,"refusal":"I will not"})")};
  EXPECT_NE(prompt_of(*qwen_, {{"messages", refused}}).find("I will not"), std::string::npos);
}

// A file that is no text is damaged: the server does not begin to serve.
TEST_F(ChatCalls, ATemplateThatIsNoTextIsRefusedAtLoad) {
  const ScratchFolder folder;
  write_chat_model(folder, "qwen");
  folder.write("chat_template.jinja", "{{ messages }}\xff");
  expect_error([&] { ServedCase(folder.path()); }, {"chat_template.jinja", "byte 14 is 0xff, which is not UTF-8"});
  folder.write("chat_template.jinja", "{% no_such %}");  // texts can still be completed
  EXPECT_NO_THROW(ServedCase(folder.path()));
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

TEST_F(ChatCalls, TheServersVariablesGiveWayToTheRequests) {
  ServedCase served(qwen_folder_->path(), 1024, {}, {{"enable_thinking", false}});
  const auto ends_empty = [&](const Json& body) {
    const auto made = served.api.chat(body.dump());
    return served.tokenizer->decode(FakeEngine(*made).submissions()[0].asked.spec.prompt, false)
        .ends_with("<think>\n\n</think>\n\n");
  };
  EXPECT_TRUE(ends_empty({{"messages", kUser}}));
  EXPECT_FALSE(ends_empty({{"messages", kUser}, {"chat_template_kwargs", {{"enable_thinking", true}}}}));
}

}  // namespace
}  // namespace nodewright::test
