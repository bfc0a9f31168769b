// The bodies that benchmarks and evaluation harnesses send, and their own rules for what they read, replayed on the
// answers: what breaks one of them is a failure here. Read in the clients' sources, 2026-11.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/serve/api/fake_engine.h"

namespace nodewright::test {
namespace {

class ClientBodies : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    served_ = new ServedCase(demo_folder());
    tokens_ = served_->ids(" there was a little girl named Lily");
  }
  static void TearDownTestSuite() { delete std::exchange(served_, nullptr); }
  static std::string completions(const std::string& body, const Script& script) {
    const auto call = served_->api.completions(body);
    return FakeEngine(*call).run_all(script);
  }
  static std::string chat(const std::string& body, const Script& script) {
    const auto call = served_->api.chat(body);
    return FakeEngine(*call).run_all(script);
  }
  static std::string text() { return served_->tokenizer->decode(tokens_); }
  static ServedCase* served_;
  static std::vector<int32_t> tokens_;
};
ServedCase* ClientBodies::served_ = nullptr;
std::vector<int32_t> ClientBodies::tokens_;

// What a benchmark measures.
struct Measured {
  std::string text;
  int events = 0;  // with text, or that it takes for a token
  int64_t completion_tokens = -1;
};

// vllm bench serve: the first event with choices is the first token, each further one a gap.
Measured read_vllm(const std::string& events, bool is_chat) {
  Measured read;
  for (const std::string& data : data_of(events)) {
    if (data == "[DONE]") continue;
    const Json chunk = Json::parse(data);
    if (chunk.contains("choices") && !chunk["choices"].empty()) {
      const Json& choice = chunk["choices"][0];
      const Json content = is_chat ? choice["delta"].value("content", Json()) : choice.value("text", Json());
      if (content.is_string()) read.text += content.get<std::string>();
      ++read.events;
    } else if (chunk.contains("usage") && !chunk["usage"].is_null()) {
      read.completion_tokens = chunk["usage"]["completion_tokens"];
    }
  }
  return read;
}

TEST_F(ClientBodies, VllmBenchCompletions) {
  const Measured read =
      read_vllm(completions(R"({"model":"demo","prompt":"Once upon a time","repetition_penalty":1.0,"max_tokens":100,
        "logprobs":null,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"temperature":0.0})",
                            {.tokens = tokens_}),
                false);
  EXPECT_EQ(read.text, text());
  EXPECT_EQ(read.events, std::ssize(tokens_));
  EXPECT_EQ(read.completion_tokens, std::ssize(tokens_));
}

TEST_F(ClientBodies, VllmBenchChat) {
  const Measured read = read_vllm(
      chat(R"({"model":"demo","messages":[{"role":"user","content":[{"type":"text","text":"Once upon a time"}]}],
        "max_completion_tokens":100,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true})",
           {.tokens = tokens_}),
      true);
  EXPECT_EQ(read.text, text());
  EXPECT_EQ(read.events, std::ssize(tokens_));
  EXPECT_EQ(read.completion_tokens, std::ssize(tokens_));
}

// sglang's benchmark reads choices[0]["text"] of every line but [DONE]: an empty list crashes it.
TEST_F(ClientBodies, SglangBench) {
  std::string read;
  for (const std::string& data : data_of(
           completions(R"({"model":"demo","prompt":"Once","temperature":0.0,"best_of":1,"max_tokens":100,"stream":true,
        "ignore_eos":true})",
                       {.tokens = tokens_}))) {
    if (data == "[DONE]") continue;
    read += Json::parse(data).at("choices").at(0).at("text").get<std::string>();
  }
  EXPECT_EQ(read, text());
}

// Counts events, and takes usage from any chunk, the last one counting; an "error" fails the request.
TEST_F(ClientBodies, Guidellm) {
  const std::string events =
      chat(R"({"model":"demo","messages":[{"role":"user","content":[{"type":"text","text":"Once"}]}],"stream":true,
        "stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_completion_tokens":64,"stop":null,
        "ignore_eos":true})",
           {.tokens = tokens_});
  std::string read;
  int64_t last = 0;
  for (const Json& chunk : chunks_of(events)) {
    EXPECT_FALSE(chunk.contains("error"));
    ASSERT_TRUE(chunk.contains("usage") && chunk["usage"].is_object());
    EXPECT_GE(chunk["usage"]["completion_tokens"], last);
    last = chunk["usage"]["completion_tokens"];
    for (const Json& choice : chunk["choices"]) read += choice["delta"].value("content", "");
  }
  EXPECT_EQ(read, text());
  EXPECT_EQ(last, std::ssize(tokens_));
}

// Drops every chunk whose object it does not know.
TEST_F(ClientBodies, Aiperf) {
  const std::string chat_events = chat(R"({"model":"demo","messages":[{"role":"user","content":"Once"}],"stream":true,
        "stream_options":{"include_usage":true},"max_completion_tokens":32,"n":1})",
                                       {.tokens = tokens_});
  for (const Json& chunk : chunks_of(chat_events)) EXPECT_EQ(chunk["object"], "chat.completion.chunk");
  const std::string events = completions(
      R"({"prompt":"Once","model":"demo","stream":true,"stream_options":{"include_usage":true},"max_tokens":32})",
      {.tokens = tokens_});
  for (const Json& chunk : chunks_of(events)) EXPECT_EQ(chunk["object"], "text_completion");
  EXPECT_FALSE(chunks_of(events).back()["usage"].is_null());
}

// Every line is JSON with a choice, and "content" a string where it is there.
TEST_F(ClientBodies, Llmperf) {
  std::string read;
  const std::string events = chat(
      R"({"model":"demo","messages":[{"role":"system","content":""},{"role":"user","content":"Once"}],"stream":true,
        "max_tokens":64})",
      {.tokens = tokens_});
  for (const std::string& data : data_of(events)) {
    if (data == "[DONE]") continue;
    const Json chunk = Json::parse(data);
    ASSERT_FALSE(chunk.contains("error"));
    const Json& delta = chunk.at("choices").at(0).at("delta");
    if (delta.contains("content")) read += delta["content"].get<std::string>();
  }
  EXPECT_EQ(read, text());
}

// lm-eval's log likelihood: the sum over the continuation, and whether each of its tokens is the likeliest.
TEST_F(ClientBodies, LmEvalLogLikelihood) {
  const Json answer = Json::parse(
      completions(R"({"model":"demo","prompt":[[5,6,7,8],[9,10,11]],"temperature":0,"max_tokens":1,"logprobs":1,
        "seed":1234,"echo":true})",
                  {.tokens = {12}}));
  const std::vector<size_t> context{2, 1};
  std::map<int, Json> choices;
  for (const Json& choice : answer["choices"]) choices[choice["index"]] = choice["logprobs"];
  ASSERT_EQ(choices.size(), 2u);
  for (const auto& [index, logprobs] : choices) {
    const size_t tokens = logprobs["token_logprobs"].size();
    ASSERT_EQ(tokens, index == 0 ? 5u : 4u);
    double sum = 0;
    bool is_greedy = true;
    for (size_t i = context[static_cast<size_t>(index)]; i + 1 < tokens; ++i) {
      const double logprob = logprobs["token_logprobs"][i];
      sum += logprob;
      double most = -1e9;
      for (const auto& [token, value] : logprobs["top_logprobs"][i].items()) most = std::max(most, value.get<double>());
      if (logprob != most) is_greedy = false;
    }
    EXPECT_DOUBLE_EQ(sum, index == 0 ? -0.5 - 0.75 : -0.25 - 0.5);
    EXPECT_TRUE(is_greedy);
  }
}

TEST_F(ClientBodies, LmEvalGeneration) {
  const Json answer =
      Json::parse(completions(R"({"prompt":[[5,6,7],[8,9]],"model":"demo","max_tokens":256,"temperature":0.0,
        "stop":["girl","<|end_of_text|>"],"seed":1234})",
                              {.tokens = tokens_}));
  ASSERT_EQ(answer["choices"].size(), 2u);
  for (const Json& choice : answer["choices"]) EXPECT_EQ(choice["text"], " there was a little ");
  const Json said =
      Json::parse(chat(R"({"messages":[{"role":"user","content":"Once","type":"text"}],"model":"demo","max_tokens":256,
        "temperature":0,"stop":["girl"],"seed":1234})",
                       {.tokens = tokens_}));
  EXPECT_EQ(said["choices"][0]["message"]["content"], " there was a little ");
}

// What litellm and LangChain send beside the messages.
TEST_F(ClientBodies, Agents) {
  const Json said = Json::parse(
      chat(R"({"model":"demo","messages":[{"role":"user","name":"me","content":"Once"}],"temperature":0.7,"top_p":1,
        "n":1,"stream":false,"max_tokens":32,"presence_penalty":0,"frequency_penalty":0,"logit_bias":{},"user":"u",
        "stop":[],"tools":[],"parallel_tool_calls":true,"response_format":{"type":"text"},"store":false,
        "metadata":{},"service_tier":"auto","reasoning_effort":"low","seed":null,"logprobs":false})",
           {.tokens = tokens_}));
  EXPECT_EQ(said["choices"][0]["message"]["content"], text());
}

}  // namespace
}  // namespace nodewright::test
