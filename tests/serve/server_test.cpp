// The server over the loopback interface before there is an engine: routes, methods, keys, request ids, and the answers
// of a model that is being loaded, of a full queue, and of a stop with calls under way.
#include "serve/server.h"

#include <gtest/gtest.h>

#include "tests/serve/plain_answers.h"
#include "tests/serve/served_demo.h"

namespace nodewright::test {
namespace {

// A server whose loop does not run.
class ServerTest : public testing::Test {
 protected:
  Server& listen(ServerOptions options = options_on_any_port()) {
    options.log = lines_.log();
    server_ = std::make_unique<Server>(std::move(options), replicas_);
    return *server_;
  }
  PlainAnswer ask(const std::string& request) { return test::ask(server_->port(), request); }
  static ServedCase& demo() {
    static ServedCase demo(demo_folder());
    return demo;
  }

  Replicas replicas_{"demo", {}};
  KeptLines lines_;
  std::unique_ptr<Server> server_;
};

// The routes that need a model.
const std::vector<std::string> kGets = {"/v1/models", "/version", "/tokenizer_info"};
const std::vector<std::string> kPosts = {
    "/v1/completions", "/v1/chat/completions", "/v1/completions/render", "/v1/chat/completions/render",
    "/tokenize",       "/detokenize"};

TEST_F(ServerTest, WhileTheModelLoadsItIsHealthyAndNotReady) {
  listen();
  EXPECT_EQ(ask(get("/health")).status, 200);
  const PlainAnswer ready = ask(get("/ready"));
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, "the model is being loaded\n");
  EXPECT_EQ(ready.header("Retry-After"), "1");
  const PlainAnswer metrics = ask(get("/metrics"));
  EXPECT_EQ(metrics.status, 200);
  EXPECT_EQ(metrics.header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(metrics.body.find("vllm:num_requests_running{"), std::string::npos);
  std::vector<std::string> requests;
  for (const std::string& path : kGets) requests.push_back(get(path));
  for (const std::string& path : kPosts) requests.push_back(post(path, "{}"));
  for (const std::string& request : requests) {
    const PlainAnswer answer = ask(request);
    EXPECT_EQ(answer.status, 503) << request;
    EXPECT_EQ(answer.header("Retry-After"), "1") << request;
    EXPECT_EQ(answer.header("Content-Type"), "application/json") << request;
    EXPECT_EQ(answer.error()["type"], "ServiceUnavailableError");
    EXPECT_EQ(answer.error()["message"], "the model is being loaded");
  }
  EXPECT_EQ(lines_.count(503), 1 + requests.size());
}

TEST_F(ServerTest, WithTheModelEveryRouteAnswersAndACallWaitsForTheEngine) {
  listen().serve(demo().api);
  for (const std::string& path : kGets) EXPECT_EQ(ask(get(path)).status, 200) << path;
  EXPECT_EQ(ask(get("/v1/models")).json()["data"][0]["id"], "demo");
  const PlainAnswer tokens = ask(post("/tokenize", R"({"prompt": "Once upon a time"})"));
  ASSERT_EQ(tokens.status, 200) << tokens.body;
  const Json ids = tokens.json()["tokens"];
  const PlainAnswer text = ask(post("/detokenize", Json{{"tokens", ids}}.dump()));
  EXPECT_EQ(text.json()["prompt"], "<|begin_of_text|>Once upon a time");
  EXPECT_EQ(ask(post("/v1/completions/render", R"({"prompt": "Once upon a time"})")).json()[0]["token_ids"], ids);
  const std::string chat = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  EXPECT_EQ(ask(post("/v1/chat/completions/render", chat)).status, 200);
  for (const PlainAnswer& answer :
       {ask(post("/v1/completions", R"({"prompt": "Once"})")), ask(post("/v1/chat/completions", chat))}) {
    EXPECT_EQ(answer.status, 503) << answer.body;
    EXPECT_EQ(answer.error()["message"], "the model is being loaded");
  }
}

TEST_F(ServerTest, WhatItDoesNotHaveIsA404AndAnotherMethodA405) {
  listen().serve(demo().api);
  for (const char* path : {"/v1", "/v1/completions//", "/V1/models", "/health/x", "/v1/embeddings", "//health"}) {
    const PlainAnswer answer = ask(get(path));
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(answer.error()["type"], "NotFoundError");
    EXPECT_EQ(answer.error()["message"], std::string("there is no ") + path);
  }
  for (const std::string& path : kPosts) {
    const PlainAnswer answer = ask(get(path));
    EXPECT_EQ(answer.status, 405) << path;
    EXPECT_EQ(answer.header("Allow"), "POST") << path;
    EXPECT_EQ(answer.error()["message"], path + " takes POST, not GET");
  }
  for (const std::string path : {"/health", "/ready", "/metrics", "/v1/models"}) {
    const PlainAnswer answer = ask(post(path, "{}"));
    EXPECT_EQ(answer.status, 405) << path;
    EXPECT_EQ(answer.header("Allow"), "GET") << path;
  }
  EXPECT_EQ(ask(post("/health?x=1", "")).status, 405) << "the query is no part of the path";
  EXPECT_EQ(ask(get("/health?x=1")).status, 200);
}

TEST_F(ServerTest, HeadIsGetWithoutItsBody) {
  listen().serve(demo().api);
  RawClient client(server_->port());
  client.say("HEAD /v1/models HTTP/1.1\r\nHost: test\r\n\r\nHEAD /tokenize HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_TRUE(client.hear_until("\r\n\r\n").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(client.hear_until("\r\n\r\n").starts_with("HTTP/1.1 405 ")) << "or a body came";
}

TEST_F(ServerTest, AKeyIsTakenFromBothHeadersAndAskedForByAllButProbesAndMetrics) {
  ServerOptions options = options_on_any_port();
  options.api_keys = {"secret", "another"};
  listen(std::move(options)).serve(demo().api);
  const std::vector<std::string> good = {"Authorization: Bearer secret\r\n",
                                         "Authorization: Bearer another\r\n",
                                         "X-Api-Key: secret\r\n",
                                         "x-api-key: another\r\n",
                                         "authorization: bearer secret\r\n",
                                         "Authorization: Bearer wrong\r\nX-Api-Key: secret\r\n",
                                         "Authorization: Basic eDp5\r\nX-Api-Key: secret\r\n"};
  const std::vector<std::string> bad = {"",
                                        "Authorization: Bearer secre\r\n",
                                        "Authorization: Bearer secret2\r\n",
                                        "Authorization: Bearer secretsecret\r\n",
                                        "Authorization: Bearer \r\n",
                                        "Authorization: secret\r\n",
                                        "Authorization: Basic secret\r\n",
                                        "X-Api-Key: Secret\r\n",
                                        "X-Api-Key:\r\n",
                                        "X-Api-Key: Bearer secret\r\n",
                                        "Cookie: secret\r\n"};
  for (const std::string& header : good) EXPECT_EQ(ask(get("/v1/models", header)).status, 200) << header;
  for (const std::string& header : bad) {
    for (const std::string& path : kGets) EXPECT_EQ(ask(get(path, header)).status, 401) << path << " " << header;
    for (const std::string& path : kPosts) {
      const PlainAnswer answer = ask(post(path, R"({"prompt": 7})", header));
      EXPECT_EQ(answer.status, 401) << path << " " << header;
      EXPECT_EQ(answer.error()["type"], "AuthenticationError");
      EXPECT_EQ(answer.body.find("secre"), std::string::npos) << "it tells a key: " << answer.body;
    }
  }
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(ask(get("/ready")).status, 503);
  EXPECT_EQ(ask(get("/metrics")).status, 200);
}

TEST_F(ServerTest, AStrangersBodyIsNotReadWhateverItAsksFor) {
  ServerOptions options = options_on_any_port();
  options.api_keys = {"secret"};
  listen(std::move(options)).serve(demo().api);
  for (const std::string& path : kPosts) {
    RawClient client(server_->port());
    client.say("POST " + path +
               " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
               "Content-Length: 30000000\r\nx-request-id: mine\r\n\r\n");
    const PlainAnswer answer = PlainAnswer::of(client.hear_to_end());
    EXPECT_EQ(answer.status, 401) << "and not 100: " << path;
    EXPECT_EQ(answer.error()["type"], "AuthenticationError");
    EXPECT_EQ(answer.header("x-request-id"), "mine");
    EXPECT_EQ(answer.header("X-Content-Type-Options"), "nosniff");
    const AccessLine line = lines_.all().back();
    EXPECT_EQ(line.path, path);
    EXPECT_EQ(line.status, 401);
  }
  for (const char* path : {"/health", "/ready", "/metrics", "/", "/plan"}) {
    RawClient client(server_->port());
    client.say(std::string("GET ") + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n");
    EXPECT_EQ(PlainAnswer::of(client.hear_to_end()).status, 413) << path;
  }
}

TEST_F(ServerTest, BrowsersAreHeldBackForPagesOfOthers) {
  ServerOptions options = options_on_any_port();
  options.allowed_hosts = {"chat.example"};
  listen(std::move(options)).serve(demo().api);
  const std::vector<std::string> foreign = {"Origin: http://evil.example\r\n", "Origin: null\r\n",
                                            "Sec-Fetch-Site: cross-site\r\n"};
  for (const std::string& header : foreign) {
    for (const std::string& path : kPosts) EXPECT_EQ(ask(post(path, "{}", header)).status, 403) << header << path;
    for (const std::string& path : {std::string("/health"), std::string("/v1/models")})
      EXPECT_EQ(ask(get(path, header)).status, 403) << header << path;
  }
  const auto of_host = [&](const std::string& host) {
    return ask("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n\r\n").status;
  };
  EXPECT_EQ(of_host("evil.example:80"), 403);
  EXPECT_EQ(of_host("chat.example"), 200);
  EXPECT_EQ(of_host("127.0.0.1:1"), 200);
}

TEST_F(ServerTest, ABodyIsJsonAsItIs) {
  listen().serve(demo().api);
  const auto status_of = [&](const std::string& headers) {
    return ask("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n" + headers + "\r\n{\"prompt\":\"a\"}");
  };
  EXPECT_EQ(status_of("Content-Type: application/json; charset=utf-8\r\n").status, 200);
  for (const char* type : {"", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"}) {
    const PlainAnswer answer = status_of(type);
    EXPECT_EQ(answer.status, 415) << type;
    EXPECT_NE(answer.error()["message"].get<std::string>().find("application/json"), std::string::npos);
  }
  const PlainAnswer packed = status_of("Content-Type: application/json\r\nContent-Encoding: gzip\r\n");
  EXPECT_EQ(packed.status, 415);
  EXPECT_EQ(packed.header("Accept-Encoding"), "identity");
  EXPECT_EQ(status_of("Content-Type: application/json\r\nContent-Encoding: identity\r\n").status, 200);
}

TEST_F(ServerTest, AModelIsFoundByItsNameAndASlashAtTheEndDoesNoHarm) {
  listen().serve(demo().api);
  const Json listed = ask(get("/v1/models")).json()["data"][0];
  for (const char* path : {"/v1/models/demo", "/v1/models/demo/", "/v1/models/d%65mo"})
    EXPECT_EQ(ask(get(path)).json(), listed) << path;
  const PlainAnswer another = ask(get("/v1/models/gpt-4"));
  EXPECT_EQ(another.status, 404);
  EXPECT_EQ(another.error()["param"], "model");
  EXPECT_EQ(ask(post("/v1/models/demo", "{}")).status, 405);
  for (const char* path : {"/health/", "/v1/models/", "/version/"}) EXPECT_EQ(ask(get(path)).status, 200) << path;
  EXPECT_EQ(ask(post("/tokenize/", R"({"prompt": "a"})")).status, 200);
}

TEST_F(ServerTest, ARequestIdIsTheClientsOwnWhereItIsAWord) {
  ServerOptions options = options_on_any_port();
  options.api_keys = {"secret"};
  listen(std::move(options));
  const auto id_of = [&](const std::string& given, const std::string& path = "/health") {
    return ask(get(path, given.empty() ? "" : "x-request-id: " + given + "\r\n")).header("x-request-id");
  };
  const std::string longest(256, 'x');
  for (const std::string& word : {std::string("a"), std::string("req-1/2:3~!"), longest}) EXPECT_EQ(id_of(word), word);
  for (const char* path : {"/ready", "/nothing", "/tokenize", "/v1/models", "/metrics"})
    EXPECT_EQ(id_of("mine", path), "mine") << path;  // 503, 404, 405, 401, 200
  for (const std::string& no_word : {std::string("two words"), longest + "x", std::string("caf\xc3\xa9")}) {
    EXPECT_NE(id_of(no_word), no_word);
    EXPECT_GE(id_of(no_word).size(), 16u) << no_word;
  }
  EXPECT_NE(id_of(""), id_of(""));
  EXPECT_EQ(lines_.all().front().request_id, "a");
}

TEST_F(ServerTest, WhatIsNoRequestHasAnIdAndALineInTheLogToo) {
  ServerOptions options = options_on_any_port();
  options.http.limits.body_bytes = 100;
  listen(std::move(options));
  struct Refused {
    std::string bytes;
    int status;
    std::string id;  // empty: one of the server's
  };
  const std::string mine = "Host: a\r\nx-request-id: mine\r\n";
  const std::vector<Refused> all = {{"nonsense\r\n\r\n", 400, ""},
                                    {"GET / HTTP/1.1\r\n" + mine + "no colon\r\n\r\n", 400, "mine"},
                                    {"GET http HTTP/1.1\r\n" + mine + "\r\n", 400, "mine"},
                                    {"POST /tokenize HTTP/1.1\r\n" + mine + "Content-Length: 101\r\n\r\n", 413, "mine"},
                                    {"GET / HTTP/1.1\r\nx-a: " + std::string(20000, 'a'), 431, ""},
                                    {"GET / HTTP/1.1\r\n" + mine + "Expect: more\r\n\r\n", 417, "mine"}};
  for (const auto& [bytes, status, id] : all) {
    const PlainAnswer answer = ask(bytes);
    EXPECT_EQ(answer.status, status);
    const std::string given = answer.header("x-request-id");
    EXPECT_EQ(given.empty() || (!id.empty() && given != id), false) << bytes.substr(0, 80) << ": " << given;
    const AccessLine line = lines_.all().back();
    EXPECT_EQ(line.request_id, given);
    EXPECT_EQ(line.status, status);
    EXPECT_EQ(line.method + line.path, "--");
    EXPECT_TRUE(line.peer.starts_with("127.0.0.1:")) << line.peer;
  }
  EXPECT_EQ(lines_.all().size(), all.size());
  EXPECT_NE(ask(get("/metrics")).body.find(R"(status="413"} 1)"), std::string::npos);
}

TEST_F(ServerTest, WhatTheApiRefusesNamesTheFieldAndWhatIsNoJsonIsA400) {
  listen().serve(demo().api);
  const PlainAnswer field = ask(post("/v1/completions", R"({"prompt": "x", "temperature": -1})"));
  EXPECT_EQ(field.status, 400);
  EXPECT_EQ(field.error()["param"], "temperature");
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt": "x", "model": "gpt-4"})")).status, 404);
  for (const char* body : {"", "{", "[]", "\xff", "{}{}", "null"})
    for (const std::string& path : kPosts) {
      const PlainAnswer answer = ask(post(path, body));
      EXPECT_EQ(answer.status, 400) << path << " " << body;
      EXPECT_FALSE(answer.error()["message"].get<std::string>().empty());
    }
}

TEST_F(ServerTest, WhereNobodyMayWaitForAWorkerACallIsA429AndAProbeIsAnswered) {
  ServerOptions options = options_on_any_port();
  options.most_waiting = 0;
  listen(std::move(options)).serve(demo().api);
  for (const std::string& path : kPosts) {
    const PlainAnswer answer = ask(post(path, "{}"));
    EXPECT_EQ(answer.status, 429) << path;
    EXPECT_EQ(answer.header("Retry-After"), "1");
    EXPECT_EQ(answer.error()["type"], "RateLimitError");
  }
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(ask(get("/v1/models")).status, 200);
  EXPECT_EQ(lines_.count(429), kPosts.size());
}

// A worker that hangs does not hang the server: others are answered, and a probe says so.
TEST_F(ServerTest, HealthTurnsBadWhenACallHangsAWorkerAndGoodWhenItEnds) {
  ServerOptions options = options_on_any_port();
  options.hangs_after = std::chrono::milliseconds(0);
  listen(std::move(options)).serve(demo().api);
  EXPECT_EQ(ask(get("/health")).status, 200);
  RawClient client(server_->port());
  const std::string slow = Json{{"prompt", std::string(size_t{4} << 20, 'a')}}.dump();
  client.say(post("/tokenize", slow));
  EXPECT_TRUE(eventually([&] { return ask(get("/health")).status == 503; }));
  EXPECT_TRUE(eventually([&] { return ask(get("/health")).status == 200; }));
}

// Jobs of clients that have hung up: the API that they use may go once stop() has returned.
TEST_F(ServerTest, AfterAStopNobodyUsesTheApi) {
  constexpr size_t kCalls = 12;
  ServerOptions options = options_on_any_port();
  options.workers = 1;
  listen(std::move(options)).serve(demo().api);
  const std::string slow = Json{{"prompt", std::string(size_t{1} << 20, 'a')}}.dump();
  std::vector<RawClient> clients;
  for (size_t i = 0; i < kCalls; ++i) {
    clients.emplace_back(server_->port());
    clients.back().say(post("/tokenize", slow));
  }
  ASSERT_TRUE(eventually([&] { return server_->open_requests() + lines_.all().size() >= kCalls; }));
  for (RawClient& client : clients) client.reset();
  server_->stop();
  const size_t told = lines_.all().size();
  EXPECT_EQ(told, kCalls) << "calls that were under way when stop() returned: " << kCalls - told;
}

}  // namespace
}  // namespace nodewright::test
