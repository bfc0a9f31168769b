// The server over the loopback interface with models/demo behind it, on the CPU driver: answers, a full engine, a
// drain, an abort, clients that hang up, and a driver that fails.
#include <gtest/gtest.h>

#include "serve/server.h"
#include "tests/serve/plain_answers.h"
#include "tests/serve/served_demo.h"
#include "tests/support/error_text.h"

namespace nodewright::test {
namespace {

// A call that ends when it is cancelled, or after half a minute and more.
constexpr const char* kLong =
    R"({"prompt": "Once upon a time", "temperature": 0, "max_tokens": 900, "ignore_eos": true, "stream": true})";
constexpr const char* kLongWhole =
    R"({"prompt": "Once upon a time", "temperature": 0, "max_tokens": 900, "ignore_eos": true})";

std::string short_call(bool streams) {
  return Json{{"prompt", "Once upon a time"}, {"temperature", 0}, {"max_tokens", 8}, {"stream", streams}}.dump();
}

// A stream, of which the first event has come.
RawClient begun_stream(uint16_t port) {
  RawClient client(port);
  client.say(post_and_close("/v1/completions", kLong));
  client.hear_until("\r\n\r\n");
  client.hear_until("\n\n");
  return client;
}

TEST(ServerOnCpuDriver, AStreamHasTheTextOfAWholeAnswerAndBothAreLogged) {
  ServedDemo served;
  const PlainAnswer whole = ask(served.port(), post("/v1/completions", short_call(false), "x-request-id: one\r\n"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.json()["id"], "cmpl-one");
  const PlainAnswer stream = ask_to_end(served.port(), post_and_close("/v1/completions", short_call(true)));
  EXPECT_EQ(stream.header("Content-Type"), "text/event-stream");
  EXPECT_FALSE(stream.header("x-request-id").empty());
  std::string text;
  for (const Json& chunk : chunks_of(stream.body)) text += chunk["choices"][0]["text"];
  EXPECT_EQ(text, whole.json()["choices"][0]["text"].get<std::string>());
  EXPECT_EQ(ask(served.port(), get("/ready")).status, 200);
  ASSERT_TRUE(eventually([&] { return served.lines.all().size() == 3; }));
  for (const AccessLine& line : served.lines.all()) {
    EXPECT_EQ(line.status, 200);
    EXPECT_TRUE(line.peer.starts_with("127.0.0.1:")) << line.peer;
    if (!line.is_call) continue;
    EXPECT_EQ(line.path, "/v1/completions");
    EXPECT_EQ(line.counts.usage.completion_tokens, 8);
  }
}

// The grammar, the mask and what is banned contradict each other: the client's fault, told with the fields' names, at
// the first token or in the middle of a stream. Others go on.
TEST(ServerOnCpuDriver, ACallThatLeavesNoTokenIsA400AndNobodyElsesFault) {
  ServedDemo served;
  RawClient beside = begun_stream(served.port());
  const Json a = served.ids("a").front();
  const std::pair<Json, const char*> cases[] = {
      {Json{{"guided_choice", {"a"}}, {"bad_sequences", Json::array({Json::array({a})})}},
       "guided_choice and bad_sequences"},
      {Json{{"guided_regex", ""}, {"min_tokens", 2}}, "guided_regex and min_tokens"},
      {Json{{"allowed_token_ids", {1}}, {"min_tokens", 2}}, "allowed_token_ids and min_tokens"},
      {Json{{"allowed_token_ids", {a}}, {"suppress_tokens", {a}}}, "allowed_token_ids and suppress_tokens"}};
  for (auto [body, fields] : cases)
    for (const bool streams : {false, true}) {
      body.update({{"prompt", "Once"}, {"max_tokens", 8}, {"stream", streams}});
      const PlainAnswer answer = ask(served.port(), post("/v1/completions", body.dump()));
      EXPECT_EQ(answer.status, 400) << body << answer.body;
      expect_words(answer.error()["message"], {std::string("what ") + fields + " ask for cannot be done"});
    }
  const Json late{{"prompt", "Once"},
                  {"max_tokens", 8},
                  {"stream", true},
                  {"allowed_token_ids", {a}},
                  {"bad_sequences", Json::array({Json::array({a, a})})}};
  const PlainAnswer stream = ask_to_end(served.port(), post_and_close("/v1/completions", late.dump()));
  EXPECT_EQ(stream.status, 200);
  expect_words(stream.body,
               {R"("type":"BadRequestError")", "what allowed_token_ids and bad_sequences ask for", "[DONE]"});
  EXPECT_EQ(ask(served.port(), post("/v1/completions", short_call(false))).status, 200);
  beside.hang_up();
}

TEST(ServerOnCpuDriver, OutputsBeyondTheMostAreA429AndTheServerStaysReady) {
  ServedDemo served(options_on_any_port(), {.most_open = 2});
  RawClient stream = begun_stream(served.port());
  const PlainAnswer full = ask(served.port(), post("/v1/completions", R"({"prompt": ["a", "b"], "max_tokens": 1})"));
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.header("Retry-After"), "1");
  EXPECT_EQ(full.error()["type"], "RateLimitError");
  EXPECT_EQ(ask(served.port(), post("/v1/completions", short_call(false))).status, 200);
  RawClient other = begun_stream(served.port());
  EXPECT_EQ(ask(served.port(), post("/v1/completions", short_call(false))).status, 429);
  EXPECT_EQ(ask(served.port(), get("/ready")).status, 200);
}

TEST(ServerOnCpuDriver, ACallThatNoTimeWouldHaveRoomForIsNotToldToTryAgain) {
  ServedDemo served(options_on_any_port(), {.most_open = 2});
  for (const char* body : {R"({"prompt": "a", "n": 3, "max_tokens": 1})", R"({"prompt": ["a", "b", "c"]})"}) {
    const PlainAnswer refused = ask(served.port(), post("/v1/completions", body));
    EXPECT_EQ(refused.status, 400);
    expect_words(refused.body, {"asks for 3 outputs", "2 at most", "--max-requests"});
  }
  EXPECT_EQ(ask(served.port(), post("/v1/completions", R"({"prompt": ["a", "b"], "max_tokens": 1})")).status, 200);
}

TEST(ServerOnCpuDriver, AClientThatHangsUpCancelsItsOutputs) {
  ServedDemo served;
  for (const bool resets : {false, true}) {
    RawClient stream = begun_stream(served.port());
    resets ? stream.reset() : stream.hang_up();
    ASSERT_TRUE(eventually([&] { return served.replicas.open() == 0; }));
    RawClient whole(served.port());
    whole.say(post("/v1/completions", kLongWhole));
    ASSERT_TRUE(eventually([&] { return served.replicas.open() > 0; }));
    whole.hang_up();
    EXPECT_TRUE(eventually([&] { return served.replicas.open() == 0; }));
  }
  EXPECT_TRUE(eventually([&] { return served.lines.count(499) == 4; })) << served.lines.all().size();
  served.end();
  EXPECT_EQ(served.owned_pages, 0);
  expect_words(served.replicas.metrics_text(), {R"(finished_reason="abort"} 4)"});
}

TEST(ServerOnCpuDriver, ADrainEndsWhatIsOpenAndRefusesTheRest) {
  ServedDemo served;
  RawClient idle(served.port()), stream(served.port());
  const std::string call = Json{{"prompt", "Once"}, {"max_tokens", 60}, {"ignore_eos", true}, {"stream", true}}.dump();
  stream.say(post_and_close("/v1/completions", call));
  stream.hear_until("\n\n");
  served.replicas.drain();
  idle.say(post("/v1/completions", short_call(false)));
  const PlainAnswer refused = PlainAnswer::of(idle.hear_answer());
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("Retry-After"), "1");
  EXPECT_EQ(refused.error()["message"], "the server is shutting down");
  EXPECT_EQ(PlainAnswer::of(idle.ask(get("/ready"))).status, 503);
  EXPECT_EQ(PlainAnswer::of(idle.ask(get("/health"))).status, 200);
  const std::string rest = stream.hear_to_end();
  EXPECT_NE(rest.find(R"("finish_reason":"length")"), std::string::npos);
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n")) << rest;
  served.join();
  EXPECT_EQ(served.failure, "");
}

TEST(ServerOnCpuDriver, AnAbortEndsAStreamWithAnErrorAndAWholeAnswerWithItsStatus) {
  ServedDemo served;
  RawClient stream = begun_stream(served.port()), whole(served.port());
  whole.say(post("/v1/completions", kLongWhole));
  ASSERT_TRUE(eventually([&] { return served.replicas.open() == 2; }));
  served.end();
  const std::string rest = stream.hear_to_end();
  EXPECT_NE(rest.find(R"(data: {"error":{)"), std::string::npos) << rest;
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n")) << rest;
  const PlainAnswer answer = PlainAnswer::of(whole.hear_answer());
  EXPECT_GE(answer.status, 500);
  EXPECT_FALSE(answer.error()["message"].get<std::string>().empty());
}

TEST(ServerOnCpuDriver, AFailedCallOfTheDriverIsOneErrorForEachOpenCallAndTheServerIsUnhealthy) {
  ServedDemo served;
  RawClient stream = begun_stream(served.port()), whole(served.port()), many(served.port());
  whole.say(post("/v1/completions", kLongWhole));
  Json several = Json::parse(kLongWhole);
  several["n"] = 8;  // more than the engine computes at once: some wait
  many.say(post("/v1/completions", several.dump()));
  ASSERT_TRUE(eventually([&] { return served.replicas.open() == 10; }));
  served.fail_driver();
  served.join();
  expect_words(served.failure, {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  const std::string rest = stream.hear_to_end();
  const size_t error = rest.find(R"(data: {"error":{)");
  ASSERT_NE(error, std::string::npos) << rest;
  EXPECT_EQ(rest.find(R"("error")", error + 9), std::string::npos) << "a second error: " << rest;
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n")) << rest;
  for (RawClient* client : {&whole, &many}) {
    const PlainAnswer answer = PlainAnswer::of(client->hear_answer());
    EXPECT_EQ(answer.status, 500) << answer.body;
    EXPECT_EQ(answer.error()["type"], "InternalServerError");
    expect_words(answer.error()["message"], {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  }
  EXPECT_EQ(ask(served.port(), get("/health")).status, 503);
  EXPECT_EQ(ask(served.port(), get("/ready")).status, 503);
  const PlainAnswer late = ask(served.port(), post("/v1/completions", short_call(false)));
  EXPECT_EQ(late.status, 500);
  EXPECT_EQ(late.error()["message"], "the engine has failed");
  EXPECT_EQ(served.replicas.open(), 0u);
  expect_words(served.replicas.metrics_text(), {R"(finished_reason="error"} 10)"});
}

}  // namespace
}  // namespace nodewright::test
