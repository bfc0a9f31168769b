// The client: URLs, events in pieces, answers of this server and of servers that misbehave.
#include "serve/http/http_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "runtime/error.h"
#include "serve/http/messages/event_lines.h"
#include "serve/http/messages/http_text.h"
#include "serve/http/messages/response_parser.h"
#include "tests/serve/http/serving_fixture.h"

namespace nodewright {
namespace {

HttpPlace place_of(const HttpServer& server) {
  return HttpPlace::of_url("http://127.0.0.1:" + std::to_string(server.port()));
}

std::string header_of(const HttpAnswer& answer, std::string_view name) {
  return std::string(header_value(answer.headers, name));
}

HttpAnswer answer_to(HttpClient& client, HttpCall call) {
  std::promise<HttpAnswer> promise;
  call.on_done = [&](HttpAnswer answer) { promise.set_value(std::move(answer)); };
  client.call(std::move(call));
  return promise.get_future().get();
}

// Answers one connection with these bytes, whatever it is asked, and closes it.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::string bytes)
      : socket_(ListeningPort()), thread_([this, bytes = std::move(bytes)] {
          const int connection = accept(socket_.descriptor, nullptr, nullptr);
          char request[4096];
          if (recv(connection, request, sizeof(request), 0) > 0)
            send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
          close(connection);
        }) {}
  ~ScriptedServer() {
    thread_.join();
    close(socket_.descriptor);
  }
  HttpPlace place() const { return HttpPlace::of_url("http://127.0.0.1:" + std::to_string(socket_.port)); }

 private:
  struct ListeningPort {
    ListeningPort() : descriptor(socket(AF_INET, SOCK_STREAM, 0)) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
      listen(descriptor, 1);
      socklen_t bytes = sizeof(address);
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes);
      port = ntohs(address.sin_port);
    }
    int descriptor;
    uint16_t port = 0;
  };
  ListeningPort socket_;
  std::thread thread_;
};

TEST(HttpPlace, IsReadOutOfUrls) {
  const HttpPlace plain = HttpPlace::of_url("http://example.test");
  EXPECT_EQ(plain.address, "example.test");
  EXPECT_EQ(plain.port, 80);
  EXPECT_EQ(plain.prefix, "");
  const HttpPlace full = HttpPlace::of_url("http://10.0.0.1:8000/api/v1/");
  EXPECT_EQ(full.address, "10.0.0.1");
  EXPECT_EQ(full.host, "10.0.0.1:8000");
  EXPECT_EQ(full.port, 8000);
  EXPECT_EQ(full.prefix, "/api/v1");
  const HttpPlace six = HttpPlace::of_url("http://[::1]:81");
  EXPECT_EQ(six.address, "::1");
  EXPECT_EQ(six.port, 81);
  EXPECT_EQ(HttpPlace::of_url("http://[::1]").address, "::1");
  EXPECT_EQ(HttpPlace::of_url("unix:/tmp/a").unix_socket, "/tmp/a");
  for (const char* bad : {"", "https://a", "a:80", "http://", "http://:80", "http://a:0", "http://a:65536",
                          "http://a:8x", "http://a:", "unix:"}) {
    EXPECT_THROW(HttpPlace::of_url(bad), Error) << bad;
  }
}

TEST(EventLines, ReadsEventsInPiecesOfAnySize) {
  const std::string text =
      ": comment\n\ndata: one\n\nevent: x\r\ndata: two\r\ndata:lines\r\n\r\nid: 7\ndata\n\ndata: [DONE]\n\ndata: open";
  const std::vector<std::string> expected = {"one", "two\nlines", "[DONE]"};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EventLines lines;
    std::vector<std::string> events;
    for (size_t at = 0; at < text.size(); at += piece) {
      for (std::string& event : lines.feed(std::string_view(text).substr(at, piece)))
        events.push_back(std::move(event));
    }
    EXPECT_EQ(events, expected) << piece;
  }
}

TEST(ResponseParser, ReadsAnAnswerInPiecesOfAnySize) {
  const std::string text =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    ResponseParser parser(false);
    std::string body;
    for (size_t at = 0; at < text.size(); at += piece) {
      ASSERT_FALSE(parser.is_whole());
      parser.feed(std::string_view(text).substr(at, piece));
      body += parser.take_body();
    }
    ASSERT_TRUE(parser.is_whole()) << piece << ": " << parser.failure();
    EXPECT_EQ(parser.status(), 201);
    EXPECT_EQ(body, "hello world");
    EXPECT_TRUE(parser.keeps_alive());
  }
}

TEST(HttpClient, UsesAConnectionAgain) {
  HttpServer server(any_port(), [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    reply->send(200, "text/plain", request.peer + " " + request.path + " " + request.body);
  });
  server.start();
  HttpClient client(HttpPlace::of_url("http://127.0.0.1:" + std::to_string(server.port()) + "/base"));
  const HttpAnswer first = answer_to(client, {.path = "/a", .body = "1"});
  const HttpAnswer second = answer_to(client, {.path = "/b", .body = "2"});
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(header_of(first, "content-type"), "text/plain");
  EXPECT_TRUE(first.body.ends_with(" /base/a 1")) << first.body;
  EXPECT_TRUE(second.body.ends_with(" /base/b 2")) << second.body;
  EXPECT_EQ(first.body.substr(0, first.body.find(' ')), second.body.substr(0, second.body.find(' ')));
  EXPECT_EQ(answer_to(client, {.method = "HEAD", .path = "/c"}).body, "");
  EXPECT_EQ(answer_to(client, {.method = "GET", .path = "/d"}).failure, "");
  EXPECT_EQ(client.open_calls(), 0u);
}

TEST(HttpClient, GetsTheEventsOfManyStreamsInOrder) {
  OpenRequests open;
  HttpServer server(any_port(), open.handler());
  server.start();
  HttpClient client(place_of(server));
  constexpr int kStreams = 100, kEvents = 20;
  std::vector<std::vector<std::string>> events(kStreams);
  std::atomic<int> done{0}, in_time{0};
  for (int i = 0; i < kStreams; ++i) {
    auto last = std::make_shared<std::chrono::steady_clock::time_point>();
    client.call({.path = "/" + std::to_string(i),
                 .on_event =
                     [&, i, last](std::string_view data, auto arrived) {
                       events[i].emplace_back(data);
                       if (arrived >= std::exchange(*last, arrived)) ++in_time;
                     },
                 .on_done =
                     [&](const HttpAnswer& answer) {
                       EXPECT_EQ(answer.failure, "");
                       EXPECT_EQ(answer.body, "");
                       ++done;
                     }});
  }
  std::vector<OpenRequests::One> requests;
  for (int i = 0; i < kStreams; ++i) requests.push_back(open.next());
  for (auto& one : requests) one.reply->begin_events();
  for (int event = 0; event < kEvents; ++event) {
    for (auto& one : requests) one.reply->write("data: " + one.request.path + " " + std::to_string(event) + "\n\n");
  }
  for (auto& one : requests) one.reply->end();
  ASSERT_TRUE(eventually([&] { return done == kStreams; }));
  for (int i = 0; i < kStreams; ++i) {
    ASSERT_EQ(events[i].size(), static_cast<size_t>(kEvents));
    for (int event = 0; event < kEvents; ++event) {
      EXPECT_EQ(events[i][event], "/" + std::to_string(i) + " " + std::to_string(event));
    }
  }
  EXPECT_EQ(in_time, kStreams * kEvents);
}

TEST(HttpClient, AnErrorInsteadOfAStreamIsABody) {
  HttpServer server(any_port(), [](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
    reply->send(429, "application/json", "{}", {{"Retry-After", "1"}});
  });
  server.start();
  HttpClient client(place_of(server));
  int events = 0;
  const HttpAnswer answer = answer_to(client, {.path = "/", .on_event = [&](std::string_view, auto) { ++events; }});
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.body, "{}");
  EXPECT_EQ(header_of(answer, "Retry-After"), "1");
  EXPECT_EQ(events, 0);
}

TEST(HttpClient, CancelHangsUp) {
  OpenRequests open;
  std::atomic<int> told{0};
  HttpServer server(any_port(), open.handler());
  server.start();
  HttpClient client(place_of(server));
  std::promise<HttpAnswer> answer;
  const uint64_t call =
      client.call({.path = "/", .on_done = [&](HttpAnswer got) { answer.set_value(std::move(got)); }});
  const OpenRequests::One request = open.next();
  request.reply->when_gone([&] { ++told; });
  request.reply->begin_events();
  client.cancel(call);
  client.cancel(call + 1000);
  EXPECT_EQ(answer.get_future().get().failure, "the call was cancelled");
  EXPECT_TRUE(eventually([&] { return told == 1; }));
}

TEST(HttpClient, ItsEndFailsOpenCalls) {
  OpenRequests open;
  HttpServer server(any_port(), open.handler());
  server.start();
  std::atomic<int> failed{0};
  OpenRequests::One kept;  // longer than the client: a reply that is dropped is an answer
  {
    HttpClient client(place_of(server));
    for (int i = 0; i < 10; ++i) {
      client.call(
          {.path = "/", .on_done = [&](const HttpAnswer& answer) { failed += answer.failure.empty() ? 0 : 1; }});
    }
    kept = open.next();
  }
  EXPECT_EQ(failed, 10);
}

TEST(HttpClient, SaysWhyThereIsNoAnswer) {
  uint16_t port = 0;
  {
    HttpServer gone(any_port(), echo);
    port = gone.port();
  }
  HttpClient refused(HttpPlace::of_url("http://127.0.0.1:" + std::to_string(port)));
  const HttpAnswer none = answer_to(refused, {.path = "/"});
  EXPECT_EQ(none.status, 0);
  EXPECT_NE(none.failure.find("Connection refused"), std::string::npos) << none.failure;
  EXPECT_THROW(HttpClient(HttpPlace::of_url("http://no.such.host.invalid")), Error);
  HttpClient nowhere(HttpPlace::of_url("unix:/no/such/socket"));
  EXPECT_NE(answer_to(nowhere, {.path = "/"}).failure.find("No such file"), std::string::npos);

  const std::vector<std::pair<std::string, std::string>> answers = {
      {"", "the server closed the connection before the answer was complete"},
      {"SSH-2.0-OpenSSH\r\n\r\n", "malformed answer"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123", "before the answer was complete"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "before the answer was complete"},
      {"HTTP/1.1 200 OK\r\n\r\nuntil the end", ""},
  };
  for (const auto& [bytes, failure] : answers) {
    ScriptedServer server(bytes);
    HttpClient client(server.place());
    const HttpAnswer answer = answer_to(client, {.path = "/"});
    EXPECT_NE(answer.failure.find(failure), std::string::npos) << bytes << ": " << answer.failure;
    EXPECT_EQ(answer.failure.empty(), failure.empty()) << bytes << ": " << answer.failure;
    if (failure.empty()) {
      EXPECT_EQ(answer.body, "until the end");
    }
  }
}

TEST(HttpClient, GetsTheRefusalOfABodyThatIsTooLarge) {
  HttpOptions options = any_port();
  options.limits.body_bytes = 1000;
  HttpServer server(options, echo);
  server.start();
  HttpClient client(place_of(server));
  EXPECT_EQ(answer_to(client, {.path = "/", .body = std::string(8 << 20, 'a')}).status, 413);
}

TEST(HttpClient, LeavesNoDescriptor) {
  const size_t descriptors = open_descriptors();
  {
    HttpServer server(any_port(), echo);
    server.start();
    HttpClient client(place_of(server));
    std::atomic<int> done{0};
    for (int i = 0; i < 50; ++i) client.call({.path = "/", .on_done = [&](const HttpAnswer&) { ++done; }});
    EXPECT_TRUE(eventually([&] { return done == 50; }));
  }
  EXPECT_EQ(open_descriptors(), descriptors);
}

}  // namespace
}  // namespace nodewright
