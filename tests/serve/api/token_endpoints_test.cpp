// The endpoints that choose no tokens: models, the tokenizer's, and the rendering of calls.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "serve/api/answer/event_text.h"
#include "serve/api/answer/logprob_shapes.h"
#include "tests/base/gguf_writer.h"
#include "tests/serve/api/fake_engine.h"
#include "tests/support/scratch_folder.h"

namespace nodewright::test {
namespace {

TEST(TokenEndpoints, ModelsHaveNamesAndTheLengthOfTheContext) {
  const ServedCase served(demo_folder(), 512);
  const Json list = Json::parse(served.api.models());
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][1]["id"], "other");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(list["data"][0]["max_model_len"], 512);
  EXPECT_EQ(list["data"][0]["created"], 1700000000);
  EXPECT_EQ(list["data"][0]["root"], demo_folder().string());
  EXPECT_TRUE(list["data"][0].contains("owned_by"));
  EXPECT_FALSE(Json::parse(served.api.version())["version"].get<std::string>().empty());
}

TEST(TokenEndpoints, AModelWithoutANameIsCalledAsItsFolder) {
  const ServedCase served(demo_folder());
  for (const char* folder : {"models/demo", "models/demo/"}) {
    const ServedModel model =
        named({served.config, served.tokenizer, source_dir() / folder, {}, 1024, {.model = demo_folder()}, 0});
    EXPECT_EQ(model.names, std::vector<std::string>{"demo"}) << folder;
  }
}

TEST(TokenEndpoints, TextsWhoseAnswerWouldBeEndlessAreRefused) {
  const ServedCase served(demo_folder());
  const std::string text((size_t{8} << 20) + 1, 'a');
  const ApiError long_text = error_of([&] { served.api.tokenize(Json{{"prompt", text}}.dump()); });
  EXPECT_EQ(long_text.param(), "prompt");
  EXPECT_NE(long_text.message().find("8388609 bytes"), std::string::npos) << long_text.message();
  const Json chat{{"messages", {{{"role", "user"}, {"content", text}}}}};
  EXPECT_EQ(error_of([&] { served.api.tokenize(chat.dump()); }).param(), "messages");
  int32_t longest = 0;
  for (int32_t id = 1; id < 1024; ++id)
    if (served.tokenizer->id_to_bytes(id).size() > served.tokenizer->id_to_bytes(longest).size()) longest = id;
  const Json ids{{"tokens", std::vector<int32_t>(1'900'000, longest)}};
  EXPECT_EQ(error_of([&] { served.api.detokenize(ids.dump()); }).param(), "tokens");
}

TEST(TokenEndpoints, TokensGoThereAndBack) {
  const ServedCase served(demo_folder());
  Json answer = Json::parse(served.api.tokenize(R"({"model":"demo","prompt":"Once upon"})"));
  EXPECT_EQ(answer["tokens"][0], 0);  // <|begin_of_text|>
  EXPECT_EQ(answer["count"], answer["tokens"].size());
  EXPECT_EQ(answer["max_model_len"], 1024);
  EXPECT_TRUE(answer["token_strs"].is_null());
  EXPECT_EQ(Json::parse(served.api.detokenize(Json{{"tokens", answer["tokens"]}}.dump()))["prompt"],
            "<|begin_of_text|>Once upon");
  answer =
      Json::parse(served.api.tokenize(R"({"prompt":"Once upon","add_special_tokens":false,"return_token_strs":true})"));
  std::string joined;
  for (const Json& one : answer["token_strs"]) joined += one.get<std::string>();
  EXPECT_EQ(joined, "Once upon");
  EXPECT_EQ(Json::parse(served.api.tokenize(
                R"({"prompt":"","add_special_tokens":false,"return_token_strs":true})"))["token_strs"],
            Json::array());
  const Json chat = Json::parse(served.api.tokenize(R"({"messages":[{"role":"user","content":"Once upon"}]})"));
  EXPECT_EQ(chat["tokens"], Json::parse(served.api.tokenize(R"({"prompt":"Once upon"})"))["tokens"]);
  EXPECT_EQ(error_of([&] { served.api.tokenize("{}"); }).param(), "prompt");
  EXPECT_EQ(error_of([&] { served.api.tokenize(R"({"prompt":5})"); }).param(), "prompt");
  EXPECT_EQ(error_of([&] { served.api.detokenize("{}"); }).param(), "tokens");
  EXPECT_EQ(error_of([&] { served.api.detokenize(R"({"tokens":[99999]})"); }).param(), "tokens");
  EXPECT_EQ(error_of([&] { served.api.tokenize(R"({"model":"x","prompt":"a"})"); }).status(), 404);
}

TEST(TokenEndpoints, TheTokenizersInfoHasItsEndAndTheTemplate) {
  const ServedCase served(demo_folder());
  const Json info = Json::parse(served.api.tokenizer_info());
  EXPECT_EQ(info["eos_token"], "<|end_of_text|>");
  EXPECT_EQ(info["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_NE(info["chat_template"].get<std::string>().find("bos_token"), std::string::npos);
  const ScratchFolder folder;  // without tokenizer_config.json
  folder.write("tokenizer.json", read_text(demo_folder() / "tokenizer.json"));
  const ServedCase bare(folder.path());
  EXPECT_EQ(Json::parse(bare.api.tokenizer_info())["eos_token"], "<|end_of_text|>");
}

TEST(TokenEndpoints, TheTokenizersInfoOfAGgufFileHasItsTemplate) {
  test::GgufWriter writer;
  writer.add("tokenizer.chat_template", "{{ messages }}");
  const ScratchFolder folder;
  const std::filesystem::path file = folder.write("m.gguf", writer.bytes());
  const ModelConfig config = read_model_config(demo_folder());
  const std::optional<Tokenizer> tokenizer = Tokenizer::from_folder(demo_folder());
  const OpenAiApi api(ServedModel{config, tokenizer, file, {"demo"}, 1024, {.model = file}, 0});
  EXPECT_EQ(Json::parse(api.tokenizer_info())["chat_template"], "{{ messages }}");
}

TEST(TokenEndpoints, CallsAreRendered) {
  ServedCase served(demo_folder());
  const Json list = Json::parse(
      served.api.render_completion(R"({"prompt":["Once","One day"],"max_tokens":3,"temperature":0.25,"stream":true})"));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["token_ids"], Json::parse(served.api.tokenize(R"({"prompt":"Once"})"))["tokens"]);
  EXPECT_EQ(list[1]["sampling_params"]["max_tokens"], 3);
  EXPECT_EQ(list[1]["sampling_params"]["temperature"], 0.25);
  EXPECT_TRUE(list[0]["request_id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(list[0]["stream"], true);
  EXPECT_TRUE(list[0]["stream_options"].is_null());
  const Json chat = Json::parse(served.api.render_chat(
      R"({"messages":[{"role":"user","content":"Once"}],"stream":true,"stream_options":{"include_usage":true}})"));
  EXPECT_EQ(chat["token_ids"], list[0]["token_ids"]);
  EXPECT_EQ(chat["stream_options"]["include_usage"], true);
  EXPECT_EQ(error_of([&] { served.api.render_completion(R"({"model":"x","prompt":"a"})"); }).status(), 404);
}

TEST(TokenEndpoints, AModelWithoutATokenizerTakesIdsAndTellsThem) {
  const ModelConfig config = read_model_config(demo_folder());
  const std::optional<Tokenizer> none;
  OpenAiApi api(ServedModel{config, none, demo_folder(), {"demo"}, 1024, {.model = demo_folder()}, 0});
  const auto call = api.completions(R"({"prompt":[5,6],"logprobs":1,"return_token_ids":true})");
  const Json choice = Json::parse(FakeEngine(*call).run_all({.tokens = {11}}))["choices"][0];
  EXPECT_EQ(choice["text"], "");
  EXPECT_EQ(choice["token_ids"], Json::array({11}));
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::array({"token_id:11"}));
  EXPECT_EQ(error_of([&] { api.completions(R"({"prompt":"Once"})"); }).param(), "prompt");
  EXPECT_EQ(error_of([&] { api.completions(R"({"prompt":[5],"stop":"a"})"); }).param(), "stop");
  EXPECT_EQ(error_of([&] { api.completions(R"({"prompt":[5],"echo":true})"); }).param(), "echo");
  EXPECT_EQ(error_of([&] { api.chat(R"({"messages":[{"role":"user","content":"a"}]})"); }).param(), "messages");
  EXPECT_EQ(error_of([&] { api.tokenize(R"({"prompt":"a"})"); }).status(), 400);
  EXPECT_EQ(error_of([&] { api.tokenizer_info(); }).status(), 404);
}

TEST(TokenEndpoints, CallsAreMadeFromManyThreads) {
  ServedCase served(demo_folder());
  std::vector<std::thread> threads;
  std::vector<std::set<std::string>> ids(8);
  for (size_t t = 0; t < ids.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        ids[t].insert(served.api.completions(R"({"prompt":"Once","guided_regex":"[ab]+"})")->id());
        ids[t].insert(served.api.chat(R"({"messages":[{"role":"user","content":"Once"}]})")->id());
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> all;
  for (const auto& one : ids) all.insert(one.begin(), one.end());
  EXPECT_EQ(all.size(), 800u);
}

TEST(EventText, StringsAreJsonWhateverTheyHold) {
  std::string all;
  for (int c = 1; c < 128; ++c) all += static_cast<char>(c);
  all += "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  std::string text;
  append_json_string(text, all);
  EXPECT_EQ(Json::parse(text), all);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  text.clear();
  append_json_string(text, "a\xFF\xE2\x82");
  EXPECT_EQ(Json::parse(text), "a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(count_characters("a\xC3\xA9\xF0\x9F\x98\x80"), 3);
}

TEST(EventText, LogprobsAreNumbersOfJson) {
  std::string text;
  for (const float value : {-0.5f, -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    append_json_logprob(text, value);
    text += ' ';
  }
  EXPECT_EQ(text, "-0.5 -9999 null ");
}

TEST(EventText, EveryStatusHasItsType) {
  const auto type = [](int status) {
    return Json::parse(error_body(ApiError(status, "a")))["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(type(400), "BadRequestError");
  EXPECT_EQ(type(401), "AuthenticationError");
  EXPECT_EQ(type(404), "NotFoundError");
  EXPECT_EQ(type(429), "RateLimitError");
  EXPECT_EQ(type(500), "InternalServerError");
  EXPECT_EQ(type(503), "ServiceUnavailableError");
  EXPECT_EQ(error_body(bad_request("a \"b\"", "c")),
            R"({"error":{"message":"a \"b\"","type":"BadRequestError","param":"c","code":400}})");
}

TEST(LogprobShapes, ATokenThatIsNotAmongTheLikeliestHasNoRank) {
  const ServedCase served(demo_folder());
  const TokenSpelling spelling(served.tokenizer);
  std::string text;
  append_prompt_logprobs(text, spelling, std::vector<TokenLogprobs>{{.token = 5, .logprob = -9, .top = {{6, -1.0f}}}});
  const Json scored = Json::parse(text);
  EXPECT_TRUE(scored[1]["5"]["rank"].is_null());
  EXPECT_EQ(scored[1]["6"]["rank"], 1);
  CompletionLogprobs logprobs;
  logprobs.add(spelling, {.token = 5, .logprob = -9, .top = {{6, -1.0f}, {5, -9.0f}}}, 0);
  text.clear();
  logprobs.append_to(text);
  EXPECT_EQ(Json::parse(text)["top_logprobs"][0].size(), 2u);
}

}  // namespace
}  // namespace nodewright::test
