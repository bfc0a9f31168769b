// Calls of /v1/completions: streams, bodies, several prompts and outputs, echo, stop strings, usage, failures.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/serve/api/fake_engine.h"

namespace nodewright::test {
namespace {

class CompletionCalls : public testing::Test {
 protected:
  static void SetUpTestSuite() { served_ = new ServedCase(demo_folder()); }
  static void TearDownTestSuite() { delete std::exchange(served_, nullptr); }
  static std::unique_ptr<ApiCall> call(const Json& body) { return served_->api.completions(body.dump()); }
  static std::vector<int32_t> ids(std::string_view text) { return served_->ids(text); }
  static Json answer(const Json& body, const Script& script) {
    const auto made = call(body);
    return Json::parse(FakeEngine(*made).run_all(script));
  }
  static std::vector<Json> stream(const Json& body, const Script& script) {
    const auto made = call(body);
    return chunks_of(FakeEngine(*made).run_all(script));
  }
  static ServedCase* served_;
};
ServedCase* CompletionCalls::served_ = nullptr;

std::string text_of(const std::vector<Json>& chunks, int index = 0) {
  std::string text;
  for (const Json& chunk : chunks)
    for (const Json& choice : chunk["choices"])
      if (choice["index"] == index) text += choice["text"].get<std::string>();
  return text;
}

TEST_F(CompletionCalls, ABodyHasTheShapeOfOpenAi) {
  const auto made = call({{"model", "other"}, {"prompt", "Once upon"}, {"max_tokens", 3}, {"temperature", 0}});
  EXPECT_FALSE(made->streams());
  EXPECT_TRUE(made->id().starts_with("cmpl-"));
  FakeEngine engine(*made);
  const Json body = Json::parse(engine.run_all({.tokens = ids(" a time there was"), .found = 1}));
  EXPECT_EQ(body["id"], made->id());
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "other");
  EXPECT_GT(body["created"], 1700000000);
  ASSERT_EQ(body["choices"].size(), 1u);
  std::vector<int32_t> three = ids(" a time there was");
  three.resize(3);
  EXPECT_EQ(body["choices"][0]["text"], served_->tokenizer->decode(three));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  const int64_t prompt = std::ssize(engine.submissions()[0].asked.spec.prompt);
  EXPECT_EQ(body["usage"], (Json{{"prompt_tokens", prompt},
                                 {"total_tokens", prompt + 3},
                                 {"completion_tokens", 3},
                                 {"prompt_tokens_details", {{"cached_tokens", 1}}}}));
}

TEST_F(CompletionCalls, SixteenTokensAreTheDefaultAndWhatTheContextLeavesWhereThatIsLess) {
  const auto of = [&](const Json& body) { return FakeEngine(*call(body)).submissions()[0].asked.spec.max_tokens; };
  EXPECT_EQ(of({{"prompt", "Once"}}), 16);
  EXPECT_EQ(of({{"prompt", std::vector<int>(1020, 5)}}), 4);
  EXPECT_EQ(of({{"prompt", "Once"}, {"max_tokens", nullptr}, {"max_completion_tokens", 7}}), 7);
  const ApiError full = error_of([&] { call({{"prompt", std::vector<int>(1024, 5)}}); });
  EXPECT_EQ(full.param(), "prompt");
  EXPECT_NE(full.message().find("maximum context length is 1024"), std::string::npos) << full.message();
  EXPECT_EQ(error_of([&] { call({{"prompt", "Once"}, {"max_tokens", 5000}}); }).param(), "max_tokens");
  EXPECT_EQ(error_of([&] {
              call({{"prompt", "Once"}, {"max_completion_tokens", 5000}});
            }).param(),
            "max_completion_tokens");
}

TEST_F(CompletionCalls, AStreamHasOneEventForEachTokenAndTheReasonInTheLast) {
  const std::vector<int32_t> tokens = ids(" a time, there was a girl");
  const Json body{{"prompt", "Once upon"}, {"max_tokens", 100}, {"stream", true}};
  const std::vector<Json> chunks = stream(body, {.tokens = tokens});
  ASSERT_EQ(chunks.size(), tokens.size());
  EXPECT_EQ(text_of(chunks), served_->tokenizer->decode(tokens));
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (const char* field : {"id", "object", "created", "model"}) EXPECT_TRUE(chunks[i].contains(field)) << field;
    EXPECT_EQ(chunks[i]["object"], "text_completion");
    EXPECT_EQ(chunks[i]["id"], chunks[0]["id"]);
    EXPECT_FALSE(chunks[i].contains("usage"));
    EXPECT_EQ(chunks[i]["choices"][0]["finish_reason"], i + 1 < chunks.size() ? Json() : Json("length"));
  }
}

TEST_F(CompletionCalls, DraftsThatWereRightAreEventsOfTheirOwn) {
  const std::vector<int32_t> tokens = ids(" a time, there was a girl");
  const std::vector<Json> chunks =
      stream({{"prompt", "Once"}, {"max_tokens", 100}, {"stream", true}}, {.tokens = tokens, .at_once = 4});
  EXPECT_EQ(chunks.size(), tokens.size());
  EXPECT_EQ(text_of(chunks), served_->tokenizer->decode(tokens));
}

TEST_F(CompletionCalls, UsageComesLastAndOnlyWhereItIsAskedFor) {
  Json body{{"prompt", "Once"}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  std::vector<Json> chunks = stream(body, {.tokens = ids(" upon a")});
  ASSERT_EQ(chunks.size(), ids(" upon a").size() + 1);
  EXPECT_EQ(chunks.back()["choices"], Json::array());
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], ids(" upon a").size());
  EXPECT_EQ(chunks.back()["object"], "text_completion");
  for (size_t i = 0; i + 1 < chunks.size(); ++i)
    EXPECT_TRUE(chunks[i].contains("usage") && chunks[i]["usage"].is_null());
  body["stream_options"]["continuous_usage_stats"] = true;
  chunks = stream(body, {.tokens = ids(" upon a")});
  for (size_t i = 0; i + 1 < chunks.size(); ++i) EXPECT_EQ(chunks[i]["usage"]["completion_tokens"], i + 1);
  body["stream_options"]["include_usage"] = nullptr;
  for (const Json& chunk : stream(body, {.tokens = ids(" upon a")})) EXPECT_FALSE(chunk["choices"].empty());
}

TEST_F(CompletionCalls, SeveralPromptsWithSeveralOutputsHaveIndexesInTheirOrder) {
  const Json body{{"prompt", {"Once", "One day", Json::array({5, 6, 7})[0]}}, {"n", 2}};
  EXPECT_EQ(error_of([&] { call(body); }).param(), "prompt");  // the third is no prompt
  const auto made = call({{"prompt", {{5, 6, 7}, {8, 9}}}, {"n", 2}, {"seed", 3}});
  FakeEngine engine(*made);
  ASSERT_EQ(engine.submissions().size(), 2u);
  EXPECT_EQ(engine.submissions()[1].first_index, 2);
  EXPECT_EQ(engine.submissions()[1].asked.spec.prompt, (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(engine.submissions()[0].asked.outputs[0].sampling.seed, 3u);
  EXPECT_NE(engine.submissions()[0].asked.outputs[1].sampling.seed, 3u);
  std::string events;
  for (const int index : {3, 0, 2, 1}) events += engine.run(index, {.tokens = ids(index == 3 ? " three" : " less")});
  EXPECT_EQ(events, "");
  const Json answer = Json::parse(made->finish());
  ASSERT_EQ(answer["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(answer["choices"][static_cast<size_t>(i)]["index"], i);
  EXPECT_EQ(answer["choices"][3]["text"], " three");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 5);
}

TEST_F(CompletionCalls, AnEchoWithLogprobsIsThePromptScored) {
  const auto made = call({{"prompt", {{5, 6, 7}, {8, 9}}}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}});
  FakeEngine engine(*made);
  EXPECT_EQ(engine.submissions()[0].asked.outputs[0].choice.options.prompt_logprobs, 1);
  const Json answer = Json::parse(engine.run_all({.tokens = {11}}));
  const Json& first = answer["choices"][0];
  EXPECT_EQ(first["text"], served_->tokenizer->decode(std::vector<int32_t>{5, 6, 7, 11}));
  EXPECT_EQ(first["logprobs"]["token_logprobs"], (Json{nullptr, -0.25, -0.5, -0.25}));
  ASSERT_EQ(first["logprobs"]["tokens"].size(), 4u);
  EXPECT_TRUE(first["logprobs"]["top_logprobs"][0].is_null());
  for (size_t i = 1; i < 4; ++i)
    EXPECT_TRUE(first["logprobs"]["top_logprobs"][i].contains(first["logprobs"]["tokens"][i].get<std::string>()));
  EXPECT_EQ(first["logprobs"]["text_offset"][0], 0);
  EXPECT_EQ(first["logprobs"]["text_offset"][3], served_->tokenizer->decode(std::vector<int32_t>{5, 6, 7}).size());
  EXPECT_FALSE(first.contains("prompt_logprobs"));
}

TEST_F(CompletionCalls, AnAnswerOfTooManyScoresIsRefused) {
  Json body{{"prompt", std::vector<int32_t>(900, 5)}, {"prompt_logprobs", 20}, {"n", 128}};
  EXPECT_NO_THROW(call(body));  // 2.4 million
  body["prompt"] = std::vector<std::vector<int32_t>>(2, std::vector<int32_t>(900, 5));
  const ApiError error = error_of([&] { call(body); });
  EXPECT_EQ(error.param(), "prompt_logprobs");
  EXPECT_NE(error.message().find("4838400 log"), std::string::npos) << error.message();
}

TEST_F(CompletionCalls, AnEchoOfNoTokensIsThePromptAlone) {
  Json body{{"prompt", "Once upon"}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}};
  const auto made = call(body);
  FakeEngine engine(*made);
  EXPECT_EQ(engine.submissions()[0].asked.spec.max_tokens, 1);
  const size_t prompt = engine.submissions()[0].asked.spec.prompt.size();
  const Json answer = Json::parse(engine.run_all({.tokens = {11}}));
  EXPECT_EQ(answer["choices"][0]["text"], "Once upon");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"].size(), prompt);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  body["stream"] = true;
  const std::vector<Json> chunks = stream(body, {.tokens = {11}});
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(text_of(chunks), "Once upon");
  body.erase("echo");
  EXPECT_EQ(error_of([&] { call(body); }).param(), "max_tokens");
}

TEST_F(CompletionCalls, AStreamEchoesWithItsFirstToken) {
  const std::vector<Json> chunks =
      stream({{"prompt", "Once"}, {"echo", true}, {"logprobs", 1}, {"stream", true}}, {.tokens = ids(" upon a")});
  ASSERT_EQ(chunks.size(), ids(" upon a").size());
  EXPECT_EQ(text_of(chunks), "Once upon a");
  EXPECT_TRUE(chunks[0]["choices"][0]["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_EQ(chunks[1]["choices"][0]["logprobs"]["tokens"].size(), 1u);
}

TEST_F(CompletionCalls, AStopStringEndsTheTextAndIsToldApart) {
  Json body{{"prompt", "Once"}, {"max_tokens", 50}, {"stop", {"girl"}}, {"logprobs", 2}};
  const std::vector<int32_t> tokens = ids(" there was a girl who");
  Json answer = CompletionCalls::answer(body, {.tokens = tokens});
  EXPECT_EQ(answer["choices"][0]["text"], " there was a ");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["stop_reason"], "girl");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"].size(), answer["usage"]["completion_tokens"]);
  body["include_stop_str_in_output"] = true;
  EXPECT_EQ(CompletionCalls::answer(body, {.tokens = tokens})["choices"][0]["text"], " there was a girl");
  body["stream"] = true;
  for (const size_t at_once : {1u, 3u}) {
    const std::vector<Json> chunks = stream(body, {.tokens = tokens, .at_once = at_once});
    EXPECT_EQ(text_of(chunks), " there was a girl");
    EXPECT_EQ(chunks.back()["choices"][0]["stop_reason"], "girl");
  }
}

TEST_F(CompletionCalls, AStopIdIsNoTextAndAnEndOfTheCheckpointHasNoReasonOfItsOwn) {
  const int32_t eos = static_cast<int32_t>(served_->config.eos[0]);
  std::vector<int32_t> tokens = ids(" a time");
  tokens.push_back(eos);
  Json answer = CompletionCalls::answer({{"prompt", "Once"}}, {.tokens = tokens});
  EXPECT_EQ(answer["choices"][0]["text"], " a time");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(answer["choices"][0]["stop_reason"].is_null());
  EXPECT_EQ(answer["usage"]["completion_tokens"], tokens.size());
  const std::vector<Json> chunks = stream({{"prompt", "Once"}, {"stream", true}}, {.tokens = tokens});
  EXPECT_EQ(chunks.size(), tokens.size());
  EXPECT_EQ(chunks.back()["choices"][0]["text"], "");
  tokens.back() = ids(" girl")[0];
  answer = CompletionCalls::answer({{"prompt", "Once"}, {"stop_token_ids", {tokens.back()}}}, {.tokens = tokens});
  EXPECT_EQ(answer["choices"][0]["stop_reason"], tokens.back());
  answer = CompletionCalls::answer(
      {{"prompt", "Once"}, {"stop_token_ids", {tokens.back()}}, {"include_stop_str_in_output", true}},
      {.tokens = tokens});
  EXPECT_EQ(answer["choices"][0]["text"], served_->tokenizer->decode(tokens));
}

TEST_F(CompletionCalls, CharactersAreSentWholeAndWhatStaysIncompleteIsReplaced) {
  std::vector<int32_t> tokens = ids("\xE2\x82\xAC\xF0\x9F\x98\x80");  // the demo spells them byte by byte
  ASSERT_EQ(tokens.size(), 7u);
  std::vector<Json> chunks = stream({{"prompt", "Once"}, {"stream", true}, {"logprobs", 0}}, {.tokens = tokens});
  ASSERT_EQ(chunks.size(), 7u);
  EXPECT_EQ(chunks[0]["choices"][0]["text"], "");
  EXPECT_EQ(chunks[2]["choices"][0]["text"], "\xE2\x82\xAC");
  EXPECT_EQ(chunks[0]["choices"][0]["logprobs"]["tokens"][0], "bytes:\\xe2");
  EXPECT_EQ(chunks[3]["choices"][0]["logprobs"]["text_offset"][0], 1);
  tokens.resize(5);
  chunks = stream({{"prompt", "Once"}, {"stream", true}}, {.tokens = tokens});
  EXPECT_EQ(text_of(chunks), served_->tokenizer->decode(tokens));
  EXPECT_EQ(chunks.back()["choices"][0]["text"], "\xEF\xBF\xBD");
}

TEST_F(CompletionCalls, TokenIdsComeBesideTheTextWhereTheyAreAskedFor) {
  Json body{{"prompt", {5, 6, 7}}, {"return_token_ids", true}};
  const Json choice = answer(body, {.tokens = {11, 12}})["choices"][0];
  EXPECT_EQ(choice["prompt_token_ids"], (Json{5, 6, 7}));
  EXPECT_EQ(choice["token_ids"], (Json{11, 12}));
  body["stream"] = true;
  const std::vector<Json> chunks = stream(body, {.tokens = {11, 12}});
  EXPECT_EQ(chunks[0]["choices"][0]["prompt_token_ids"], (Json{5, 6, 7}));
  EXPECT_EQ(chunks[1]["choices"][0]["token_ids"], Json::array({12}));
  EXPECT_FALSE(chunks[1]["choices"][0].contains("prompt_token_ids"));
}

TEST_F(CompletionCalls, PromptLogprobsHaveTheShapeOfVllm) {
  const Json body{{"prompt", {5, 6}}, {"prompt_logprobs", 2}};
  const Json scored = answer(body, {.tokens = {11}})["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(scored.size(), 2u);
  EXPECT_TRUE(scored[0].is_null());
  EXPECT_EQ(scored[1]["6"]["logprob"], -0.25);
  EXPECT_EQ(scored[1]["6"]["rank"], 1);
  EXPECT_EQ(scored[1]["7"]["rank"], 2);
  EXPECT_EQ(error_of([&] {
              call({{"prompt", {5}}, {"prompt_logprobs", 1}, {"stream", true}});
            }).param(),
            "prompt_logprobs");
}

// A 500 is for the server's own faults.
TEST_F(CompletionCalls, WhatARequestAsksForInVainIsItsOwnFaultByTheNamesOfTheFields) {
  const OutputUpdate denied{
      .end = Resolution{.reason = EndReason::failed, .message = "nothing may be chosen", .by_request = true}};
  const auto error_for = [&](Json body, const OutputUpdate& end) {
    body["prompt"] = "Once";
    const auto made = call(body);
    made->update(end);
    EXPECT_EQ(made->status(), made->failure()->status());
    return Json::parse(made->finish())["error"];
  };
  const Json one = error_for({{"guided_choice", {"a"}}}, denied);
  EXPECT_EQ(one["code"], 400);
  EXPECT_EQ(one["type"], "BadRequestError");
  EXPECT_EQ(one["param"], "guided_choice");
  EXPECT_EQ(one["message"], "what guided_choice asks for cannot be done: nothing may be chosen");
  const Json all = error_for({{"structured_outputs", {{"json", {{"const", "a"}}}}},
                              {"ignore_eos", true},
                              {"bad_words", {"a"}},
                              {"logit_bias", {{"5", -100}}},
                              {"min_tokens", 1}},
                             denied);
  EXPECT_EQ(all["param"], "structured_outputs");
  EXPECT_EQ(all["message"],
            "what structured_outputs.json, ignore_eos, logit_bias, bad_words and min_tokens ask for cannot be done: "
            "nothing may be chosen");
  EXPECT_EQ(error_for({{"allowed_token_ids", {1}}, {"min_tokens", 1}}, denied)["message"],
            "what allowed_token_ids and min_tokens ask for cannot be done: nothing may be chosen");
  EXPECT_EQ(error_for(Json::object(), denied)["code"], 500) << "the checkpoint's own biases";
  OutputUpdate lost = denied;
  lost.end->by_request = false;
  EXPECT_EQ(error_for({{"guided_choice", {"a"}}}, lost)["code"], 500);
  auto made = call({{"prompt", "Once"}, {"guided_choice", {"a"}}, {"stream", true}});
  const Json event = Json::parse(data_of(made->update(denied))[0])["error"];
  EXPECT_EQ(event["code"], 400);
}

TEST_F(CompletionCalls, AnAdapterThatHasGoneSinceTheCallWasReadIsA404) {
  ServedAdapters& adapters = *served_->api.model().adapters;
  adapters.add("tuned", "folder");
  const auto named = call({{"prompt", "Once"}, {"model", "tuned"}}), plain = call({{"prompt", "Once"}});
  EXPECT_EQ(named->refusal("the prompt is too long").status(), 400);
  const std::optional<ServedAdapter> gone = adapters.withdraw("tuned");
  ASSERT_TRUE(gone);
  EXPECT_FALSE(adapters.withdraw("tuned"));
  EXPECT_EQ(named->refusal("no adapter 'tuned' is loaded").status(), 404);
  EXPECT_EQ(named->refusal("no adapter 'tuned' is loaded").type(), "NotFoundError");
  EXPECT_EQ(plain->refusal("the prompt is too long").status(), 400);
  for (const char* field : {"model", "adapter", "lora_path"}) {
    EXPECT_EQ(error_of([&] { call({{"prompt", "Once"}, {field, "tuned"}}); }).status(), 404) << field;
    EXPECT_EQ(error_of([&] {
                served_->api.tokenize(Json{{"prompt", "Once"}, {field, "tuned"}}.dump());
              }).status(),
              404);
    EXPECT_EQ(error_of([&] { served_->api.detokenize(Json{{"tokens", {5}}, {field, "tuned"}}.dump()); }).status(), 404);
  }
  EXPECT_EQ(error_of([&] { served_->api.model_named("tuned"); }).status(), 404);
  adapters.restore(*gone);
  EXPECT_NO_THROW(served_->api.model_named("tuned"));
  adapters.withdraw("tuned");
}

TEST_F(CompletionCalls, AFailureIsAnEventOfItsOwnOrABodyWithItsStatus) {
  const OutputUpdate failure{.end = Resolution{.reason = EndReason::failed, .message = "the \"device\" is gone"}};
  auto made = call({{"prompt", "Once"}, {"stream", true}});
  std::string events = made->update(failure);
  events += made->finish();
  std::vector<std::string> data = data_of(events);
  ASSERT_EQ(data.size(), 2u);
  const Json error = Json::parse(data[0])["error"];
  EXPECT_EQ(error["message"], "the \"device\" is gone");
  EXPECT_EQ(error["type"], "InternalServerError");
  EXPECT_EQ(error["code"], 500);
  EXPECT_EQ(data[1], "[DONE]");
  made = call({{"prompt", "Once"}});
  EXPECT_EQ(made->update(failure), "");
  EXPECT_TRUE(made->is_done());
  EXPECT_EQ(made->status(), 500);
  EXPECT_EQ(Json::parse(made->finish())["error"]["code"], 500);
  made = call({{"prompt", "Once"}, {"stream", true}});
  data = data_of(made->fail(ApiError(429, "too many")));
  EXPECT_EQ(Json::parse(data[0])["error"]["type"], "RateLimitError");
  EXPECT_EQ(data[1], "[DONE]");
  EXPECT_EQ(made->finish(), "");
  const OutputUpdate cancelled{.end = Resolution{.reason = EndReason::cancelled}};
  made = call({{"prompt", "Once"}});
  made->update(cancelled);
  EXPECT_EQ(made->status(), 503);
}

TEST_F(CompletionCalls, CountsAreThoseOfTheLog) {
  const auto made = call({{"prompt", {{5, 6}, {7}}}, {"max_tokens", 4}, {"request_id", "abc"}});
  EXPECT_EQ(made->id(), "cmpl-abc");
  FakeEngine engine(*made);
  engine.run(0, {.tokens = {11, 12}, .found = 1});
  EXPECT_EQ(made->counts().finish_reasons, (std::vector<std::string>{"length", ""}));
  engine.run(1, {.tokens = {11}});
  const CallCounts counts = made->counts();
  EXPECT_EQ(counts.usage.prompt_tokens, 3);
  EXPECT_EQ(counts.usage.completion_tokens, 3);
  EXPECT_EQ(counts.usage.cached_tokens, 1);
  const auto both = call({{"prompt", {5, 6, 7}}, {"n", 2}});  // the second output finds what the first has computed
  FakeEngine outputs(*both);
  outputs.run(0, {.tokens = {11}, .found = 1});
  outputs.run(1, {.tokens = {11}, .found = 3});
  EXPECT_EQ(both->counts().usage.cached_tokens, 1);
  EXPECT_EQ(both->counts().usage.prompt_tokens, 3);
  EXPECT_EQ(served_->api.completions(R"({"prompt":"x","request_id":"abc"})", "head")->id(), "cmpl-head");
}

}  // namespace
}  // namespace nodewright::test
