// Clients that are slow, silent, too many, or gone: what each of HttpLimits does.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <vector>

#include "tests/serve/http/serving_fixture.h"

namespace nodewright {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

class HttpLimitsTest : public testing::Test {
 protected:
  void serve(HttpHandler handler) {
    server = std::make_unique<HttpServer>(options, std::move(handler));
    server->start();
  }

  OpenRequests open;
  HttpOptions options = any_port();
  std::atomic<int> told{0};
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpLimitsTest, AHeadThatDoesNotEndIsA408) {
  options.limits.header_timeout = seconds(1);
  serve(echo);
  RawClient one(server->port());
  const auto start = steady_clock::now();
  one.say("GET / HT");
  const std::string answer = one.hear_to_end();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n")) << answer;
  EXPECT_GE(steady_clock::now() - start, std::chrono::milliseconds(990));
}

TEST_F(HttpLimitsTest, BytesThatTrickleDoNotExtendTheTime) {
  options.limits.header_timeout = seconds(1);
  serve(echo);
  RawClient one(server->port());
  one.say("GET / HTTP/1.1\r\n");
  const auto start = steady_clock::now();
  while (steady_clock::now() - start < std::chrono::milliseconds(1700) && one.try_say("X: y\r\n")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(one.hear_to_end().starts_with("HTTP/1.1 408 "));
}

TEST_F(HttpLimitsTest, ABodyThatDoesNotEndIsA408) {
  options.limits.body_timeout = seconds(1);
  serve(echo);
  RawClient one(server->port());
  one.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n123");
  EXPECT_TRUE(one.hear_to_end().starts_with("HTTP/1.1 408 "));
}

TEST_F(HttpLimitsTest, ASilentConnectionIsClosedWithoutAWord) {
  options.limits.idle_timeout = seconds(1);
  options.limits.header_timeout = seconds(60);
  serve(echo);
  RawClient silent(server->port());
  RawClient quiet_after_a_request(server->port());
  EXPECT_TRUE(quiet_after_a_request.ask(get("/")).starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(silent.hear_to_end(), "");
  EXPECT_EQ(quiet_after_a_request.hear_to_end(), "");
}

TEST_F(HttpLimitsTest, AnAnswerUnderWayHasAllTheTimeItNeeds) {
  options.limits.header_timeout = options.limits.body_timeout = options.limits.idle_timeout = seconds(1);
  serve(open.handler());
  RawClient one(server->port());
  one.say(get("/"));
  const OpenRequests::One request = open.next();
  request.reply->when_gone([&] { ++told; });
  std::this_thread::sleep_for(std::chrono::milliseconds(1600));
  request.reply->begin_events();
  request.reply->write("data: 1\n\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(1600));
  request.reply->end();
  EXPECT_TRUE(one.hear_until("0\r\n\r\n").starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(told, 0);
}

TEST_F(HttpLimitsTest, ATooSlowReaderIsCutOffAndOthersAreNot) {
  options.limits.queue_bytes = 100 << 10;
  serve(open.handler());
  RawClient slow(server->port(), 4096);
  slow.say(get("/slow"));
  const OpenRequests::One to_slow = open.next();
  to_slow.reply->when_gone([&] { ++told; });
  to_slow.reply->begin_events();
  RawClient quick(server->port());
  quick.say(get("/quick"));
  const OpenRequests::One to_quick = open.next();
  to_quick.reply->begin_events();
  quick.hear_until("\r\n\r\n");
  const std::string event = "data: " + std::string(10000, 'x') + "\n\n";
  for (int i = 0; i < 3000 && told == 0; ++i) {  // 30 MB: more than the sockets' buffers take
    to_slow.reply->write(event);
    to_quick.reply->write(event);
    quick.hear_until("\n\n\r\n");
  }
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  to_slow.reply->write(event);  // nobody is there
  to_slow.reply->end();
  to_quick.reply->end();
  quick.hear_until("0\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return server->open_requests() == 0; }));
  EXPECT_EQ(slow.hear_to_end().find("\r\n0\r\n\r\n"), std::string::npos);
  EXPECT_EQ(told, 1);
}

TEST_F(HttpLimitsTest, AStreamThatIsDroppedIsCutThoughItsReaderHasStopped) {
  serve(open.handler());
  RawClient stopped(server->port(), 4096);
  stopped.say(get("/"));
  OpenRequests::One request = open.next();
  request.reply->begin_events();
  request.reply->write(std::string(16 << 20, 'x'));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  request.reply.reset();
  EXPECT_TRUE(eventually([&] { return server->open_requests() == 0; }));
}

TEST_F(HttpLimitsTest, AReaderThatStopsIsCutOffThoughLittleWaits) {
  options.limits.body_timeout = seconds(1);
  serve(open.handler());
  RawClient stopped(server->port(), 4096);
  stopped.say(get("/"));
  const OpenRequests::One request = open.next();
  request.reply->when_gone([&] { ++told; });
  request.reply->begin_events();
  request.reply->write(std::string(16 << 20, 'x'));  // once, into an empty queue: may be larger than queue_bytes
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  EXPECT_EQ(server->open_requests(), 0u);
}

TEST_F(HttpLimitsTest, AReaderThatIsSlowButReadsGetsAll) {
  options.limits.body_timeout = seconds(1);
  const std::string body(3 << 20, 'x');
  serve([&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) { reply->send(200, "", body); });
  RawClient slow(server->port(), 4096);
  slow.say(get("/"));
  std::string heard = slow.hear_until("\r\n\r\n");
  for (size_t bytes = 0; bytes < body.size(); bytes += body.size() / 12) {  // 2.4 s in all
    EXPECT_EQ(slow.hear_bytes(body.size() / 12).size(), body.size() / 12);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

TEST_F(HttpLimitsTest, AHangUpIsNoticedThoughNothingIsWritten) {
  serve(open.handler());
  for (const bool reset : {false, true}) {
    for (const bool streaming : {false, true}) {
      told = 0;
      RawClient one(server->port());
      one.say(get("/") + (streaming ? get("/another") : ""));  // bytes that wait do not hide it
      const OpenRequests::One request = open.next();
      request.reply->when_gone([&] { ++told; });
      if (streaming) {
        request.reply->begin_events();
        one.hear_until("\r\n\r\n");
      }
      reset ? one.reset() : one.hang_up();
      EXPECT_TRUE(eventually([&] { return told == 1; }));
      EXPECT_EQ(server->open_requests(), 0u);
      if (!streaming) request.reply->send(200, "", "nobody is there");
    }
  }
}

TEST_F(HttpLimitsTest, WhoAsksLateIsToldOnTheIoThread) {
  serve(open.handler());
  RawClient one(server->port());
  one.say(get("/"));
  const OpenRequests::One request = open.next();
  one.hang_up();
  EXPECT_TRUE(eventually([&] { return server->open_requests() == 0; }));
  std::atomic<bool> elsewhere{false};
  const auto me = std::this_thread::get_id();
  request.reply->when_gone([&] {
    elsewhere = std::this_thread::get_id() != me;
    ++told;
  });
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  EXPECT_TRUE(elsewhere);
}

TEST_F(HttpLimitsTest, ConnectionsBeyondTheLimitAreTold) {
  options.limits.connections = 3;
  std::vector<OpenRequests::One> asked;
  serve(open.handler());
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server->port());
    clients.back().say(get("/"));
    asked.push_back(open.next());
  }
  RawClient fourth(server->port());
  EXPECT_TRUE(fourth.hear_to_end().starts_with("HTTP/1.1 503 "));
  fourth.hang_up();
  clients.pop_back();
  EXPECT_TRUE(eventually([&] {
    RawClient next(server->port());
    if (!next.try_say(get("/"))) return false;
    pollfd answered{.fd = next.descriptor(), .events = POLLIN, .revents = 0};  // 503 while the third still counts
    eventually([&] { return open.count() > 0 || poll(&answered, 1, 0) > 0; });
    if (open.count() == 0) return false;
    open.next().reply->send(200, "", "");
    return next.hear_until("\r\n").starts_with("HTTP/1.1 200 ");
  }));
}

TEST_F(HttpLimitsTest, TheOldestIdleConnectionMakesRoom) {
  options.limits.connections = 3;
  serve(echo);
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server->port());
    EXPECT_TRUE(clients.back().ask(get("/")).starts_with("HTTP/1.1 200 "));
  }
  EXPECT_TRUE(clients[0].ask(get("/")).starts_with("HTTP/1.1 200 ")) << "and the second is the oldest now";
  for (int i = 0; i < 20; ++i) {
    RawClient next(server->port());
    EXPECT_TRUE(next.ask(get("/")).starts_with("HTTP/1.1 200 "));
    if (i == 0) {
      EXPECT_EQ(clients[1].hear_to_end(), "");
    }
  }
}

TEST_F(HttpLimitsTest, ProbesHavePlacesOfTheirOwn) {
  options.limits.connections = 2;
  options.limits.kept_connections = 2;
  options.kept_paths = {"/health"};
  std::vector<OpenRequests::One> asked;
  serve([&](HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
    if (request.path == "/health") return reply->send(200, "", "well");
    open.handler()(std::move(request), reply);
  });
  std::vector<RawClient> busy;
  for (int i = 0; i < 2; ++i) {
    busy.emplace_back(server->port());
    busy.back().say(get("/slow"));
    asked.push_back(open.next());
  }
  for (int i = 0; i < 5; ++i) {
    RawClient probe(server->port());
    EXPECT_TRUE(probe.ask(get("/health")).starts_with("HTTP/1.1 200 "));
    RawClient another(server->port());
    another.say(i % 2 == 0 ? get("/slow") : post("/slow", "body"));
    EXPECT_TRUE(another.hear_to_end().starts_with("HTTP/1.1 503 "));
  }
  EXPECT_EQ(open.count(), 0u);
}

TEST_F(HttpLimitsTest, AHeadIsCheckedBeforeTheBodyIsAskedFor) {
  std::atomic<int> checked{0};
  options.refuse_head = [&](const HttpRequest& head) -> std::optional<HttpRefusal> {
    ++checked;
    if (!head.header("Key").empty()) return std::nullopt;
    return HttpRefusal{401, "text/plain", "no key", {{"X-More", head.path}}};
  };
  options.headers = {{"X-Every", "answer"}};
  serve(echo);
  const std::string expects = "POST /p HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 30000000\r\n";
  RawClient stranger(server->port());
  stranger.say(expects + "\r\n");
  const std::string refused = stranger.hear_to_end();
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 401 ")) << refused;
  EXPECT_NE(refused.find("X-More: /p\r\n"), std::string::npos) << refused;
  EXPECT_NE(refused.find("X-Every: answer\r\n"), std::string::npos) << refused;
  EXPECT_TRUE(refused.ends_with("\r\n\r\nno key")) << refused;
  RawClient chunked(server->port());
  chunked.say("POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
  EXPECT_TRUE(chunked.hear_to_end().starts_with("HTTP/1.1 401 "));
  RawClient known(server->port());
  known.say(expects + "Key: k\r\n\r\n");
  EXPECT_EQ(known.hear_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(checked, 3);
  RawClient bodiless(server->port());
  EXPECT_TRUE(bodiless.ask(get("/")).starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(checked, 3) << "a request without a body is the handler's";
}

TEST_F(HttpLimitsTest, AllBodiesTogetherHaveABudgetThatTheyGiveBack) {
  options.limits.bodies_bytes = 10000;
  serve(open.handler());
  const auto begun = [&](const std::string& framing, const std::string& part) {
    RawClient client(server->port());
    client.say("POST / HTTP/1.1\r\nHost: a\r\n" + framing + "\r\n\r\n" + part);
    return client;
  };
  RawClient first(server->port());
  first.say(post("/", std::string(6000, 'a')));
  std::optional<OpenRequests::One> held = open.next();
  RawClient second = begun("Content-Length: 6000", std::string(5000, 'b'));
  EXPECT_TRUE(second.hear_to_end().starts_with("HTTP/1.1 503 "));
  RawClient third = begun("Transfer-Encoding: chunked", "1388\r\n" + std::string(5000, 'c') + "\r\n");
  EXPECT_TRUE(third.hear_to_end().starts_with("HTTP/1.1 503 "));
  held->reply->send(200, "", "");
  held.reset();
  EXPECT_TRUE(first.hear_answer().starts_with("HTTP/1.1 200 "));
  RawClient fourth(server->port());
  fourth.say(post("/", std::string(9000, 'd')));
  EXPECT_EQ(open.next().request.body.size(), 9000u) << "what the first and the refused ones had is free";
}

TEST_F(HttpLimitsTest, AClientThatHasShutDownItsSendingSideIsAnswered) {
  serve(open.handler());
  for (const bool streaming : {false, true}) {
    RawClient one(server->port());
    one.say(get("/first") + get("/second"));
    shutdown(one.descriptor(), SHUT_WR);
    for (const char* path : {"/first", "/second"}) {
      const OpenRequests::One request = open.next();
      EXPECT_EQ(request.request.path, path);
      std::this_thread::sleep_for(std::chrono::milliseconds(path[1] == 'f' ? 900 : 0));  // long enough for a probe
      if (streaming) {
        request.reply->begin_events();
        request.reply->write("data: 1\n\n");
        request.reply->end();
      } else {
        request.reply->send(200, "text/plain", "whole");
      }
    }
    const std::string heard = one.hear_to_end();
    EXPECT_TRUE(heard.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")) << heard;
    const std::string end = streaming ? "data: 1\n\n" : "whole";
    EXPECT_NE(heard.find(end, heard.find(end) + 1), std::string::npos) << "both answers: " << heard;
    EXPECT_TRUE(eventually([&] { return server->open_requests() == 0; }));
  }
}

}  // namespace
}  // namespace nodewright
