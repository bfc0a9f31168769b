// The server as one client sees it: requests and answers, errors, CORS, where it listens.
#include "serve/http/http_server.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "runtime/error.h"
#include "serve/http/sockets/listening_socket.h"
#include "tests/serve/http/serving_fixture.h"

namespace nodewright {
namespace {

class HttpServerTest : public testing::Test {
 protected:
  void serve(HttpHandler handler, HttpOptions options = any_port()) {
    server = std::make_unique<HttpServer>(options, std::move(handler));
    server->start();
  }
  RawClient client() const { return RawClient(server->port()); }

  OpenRequests open;
  std::unique_ptr<HttpServer> server;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(HttpServerTest, AnswersOneRequestAfterAnotherOnAConnection) {
  serve(echo);
  RawClient one = client();
  for (int i = 0; i < 3; ++i) {
    const std::string answer = one.ask(post("/a?b=c", "body " + std::to_string(i)));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\nPOST /a [b=c] body " + std::to_string(i))) << answer;
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInTheirOrder) {
  serve(echo);
  RawClient one = client();
  std::string requests;
  for (int i = 0; i < 5000; ++i) requests += get("/" + std::to_string(i));  // far more than it reads ahead
  std::thread speaker([&] { one.say(requests); });
  for (int i = 0; i < 5000; ++i) {
    const std::string answer = one.hear_answer();
    ASSERT_TRUE(answer.ends_with("GET /" + std::to_string(i) + " [] ")) << answer;
  }
  speaker.join();
}

TEST_F(HttpServerTest, APipelinedRequestWaitsForTheAnswerBeforeIt) {
  serve(open.handler());
  RawClient one = client();
  one.say(get("/1") + get("/2"));
  const OpenRequests::One first = open.next();
  EXPECT_EQ(first.request.path, "/1");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(open.count(), 0u);
  EXPECT_EQ(server->open_requests(), 1u);
  first.reply->send(200, "text/plain", "one");
  EXPECT_TRUE(one.hear_answer().ends_with("one"));
  const OpenRequests::One second = open.next();
  EXPECT_EQ(second.request.path, "/2");
  second.reply->send(200, "text/plain", "two");
  EXPECT_TRUE(one.hear_answer().ends_with("two"));
  EXPECT_TRUE(eventually([&] { return server->open_requests() == 0; }));
}

TEST_F(HttpServerTest, StreamsEventsAsTheyAreWritten) {
  serve(open.handler());
  RawClient one = client();
  one.say(post("/", "x"));
  const OpenRequests::One request = open.next();
  EXPECT_EQ(request.request.peer.substr(0, 10), "127.0.0.1:");
  request.reply->begin_events({{"X-Id", "7"}});
  EXPECT_TRUE(contains(one.hear_until("\r\n\r\n"), "X-Id: 7\r\n"));
  for (int i = 0; i < 3; ++i) {
    request.reply->write("data: " + std::to_string(i) + "\n\n");
    EXPECT_EQ(one.hear_until("\n\n\r\n"), "9\r\ndata: " + std::to_string(i) + "\n\n\r\n");
  }
  request.reply->end();
  EXPECT_EQ(one.hear_until("0\r\n\r\n"), "0\r\n\r\n");
  one.say(get("/next"));  // the connection goes on
  open.next().reply->send(200, "text/plain", "next");
  EXPECT_TRUE(one.hear_answer().ends_with("next"));
}

TEST_F(HttpServerTest, AHeadAnswerHasNoBody) {
  serve(echo);
  RawClient one = client();
  one.say("HEAD /a HTTP/1.1\r\nHost: test\r\n\r\n" + get("/b"));
  const std::string head = one.hear_until("\r\n\r\n");
  EXPECT_TRUE(contains(head, "Content-Length: 11\r\n")) << head;
  EXPECT_TRUE(one.hear_answer().ends_with("GET /b [] "));
}

TEST_F(HttpServerTest, AnOldClientGetsItsConnectionClosed) {
  serve(echo);
  RawClient one = client();
  one.say("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string answer = one.hear_to_end();
  EXPECT_TRUE(contains(answer, "Connection: close\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("GET /a [] ")) << answer;
}

TEST_F(HttpServerTest, AsksForTheBodyOfAClientThatExpectsIt) {
  serve(echo);
  RawClient one = client();
  one.say("POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(one.hear_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(one.ask("abc").ends_with("POST / [] abc"));
  // The same after another request.
  one.say(get("/a") + "POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_TRUE(one.hear_answer().ends_with("GET /a [] "));
  EXPECT_EQ(one.hear_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(one.ask("abc").ends_with("POST / [] abc"));
}

TEST_F(HttpServerTest, RefusesABodyThatIsTooLargeBeforeItCame) {
  HttpOptions options = any_port();
  options.limits.body_bytes = 1000;
  serve(echo, options);
  RawClient one = client();
  one.say("POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
  const std::string answer = one.hear_to_end();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 Content Too Large\r\n")) << answer;
  EXPECT_TRUE(contains(answer, "Connection: close\r\n")) << answer;
  EXPECT_TRUE(contains(answer, R"({"error":{"code":413,"message":"the body has more than 1000 bytes")")) << answer;
}

TEST_F(HttpServerTest, AClientThatSendsItsWholeTooLargeBodyStillReadsTheAnswer) {
  HttpOptions options = any_port();
  options.limits.body_bytes = 1000;
  serve(echo, options);
  RawClient one = client();
  one.say(post("/", std::string(8 << 20, 'a')));  // far more than the sockets hold
  EXPECT_TRUE(one.hear_to_end().starts_with("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, TakesABodyUpToTheLimit) {
  HttpOptions options = any_port();
  options.limits.body_bytes = 4 << 20;
  serve([](HttpRequest request,
           const std::shared_ptr<HttpReply>& reply) { reply->send(200, "text/plain", request.body); },
        options);
  RawClient one = client();
  const std::string body(options.limits.body_bytes, 'b');
  EXPECT_TRUE(one.ask(post("/", body)).ends_with("\r\n\r\n" + body));
}

TEST_F(HttpServerTest, RefusesWhatIsMalformedAndClosesTheConnection) {
  serve(echo);
  for (const auto& [bytes, status] :
       std::vector<std::pair<std::string, std::string>>{{"nonsense\r\n\r\n", "400"},
                                                        {"GET / HTTP/1.1\r\n\r\n", "400"},
                                                        {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", "400"},
                                                        {"GET / HTTP/1.1\nHost: a\n\n", "400"},
                                                        {get("/", "X: " + std::string(20000, 'a') + "\r\n"), "431"},
                                                        {"GET /" + std::string(20000, 'a'), "431"}}) {
    RawClient one = client();
    one.say(bytes);
    const std::string answer = one.hear_to_end();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + status + " ")) << status << ": " << answer;
  }
  EXPECT_TRUE(client().ask(get("/")).starts_with("HTTP/1.1 200 ")) << "others are served";
}

TEST_F(HttpServerTest, AHandlerThatThrowsIsA500) {
  serve([](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    if (request.path == "/late") reply->send(202, "text/plain", "answered");
    if (request.path == "/odd") throw 7;
    throw std::runtime_error("no such \"luck\"");
  });
  RawClient one = client();
  const std::string answer = one.ask(get("/"));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 500 Internal Server Error\r\n")) << answer;
  EXPECT_TRUE(contains(answer, R"("message":"no such \"luck\"")")) << answer;
  EXPECT_TRUE(one.ask(get("/odd")).starts_with("HTTP/1.1 500 "));
  EXPECT_TRUE(one.ask(get("/late")).starts_with("HTTP/1.1 202 "));
}

TEST_F(HttpServerTest, AReplyThatIsDroppedIsA500OrCutsItsStream) {
  serve([](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    if (request.path == "/stream") reply->begin_events();
  });
  RawClient one = client();
  EXPECT_TRUE(one.ask(get("/")).starts_with("HTTP/1.1 500 "));
  one.say(get("/stream"));
  EXPECT_FALSE(contains(one.hear_to_end(), "0\r\n\r\n")) << "a client must not take it for complete";
}

TEST_F(HttpServerTest, OnlyPagesOfTheOneOriginMayCall) {
  HttpOptions options = any_port();
  options.cors_origin = "http://page.test";
  serve(echo, options);
  const std::string asks =
      "OPTIONS /v1 HTTP/1.1\r\nHost: test\r\nAccess-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization, content-type\r\n";
  RawClient one = client();
  const std::string preflight = one.ask(asks + "Origin: http://page.test\r\n\r\n");
  EXPECT_TRUE(preflight.starts_with("HTTP/1.1 204 No Content\r\n")) << preflight;
  EXPECT_TRUE(contains(preflight, "Access-Control-Allow-Origin: http://page.test\r\n")) << preflight;
  EXPECT_TRUE(contains(preflight, "Access-Control-Allow-Headers: authorization, content-type\r\n")) << preflight;
  const std::string answer = one.ask(get("/", "Origin: http://page.test\r\n"));
  EXPECT_TRUE(contains(answer, "Access-Control-Allow-Origin: http://page.test\r\n")) << answer;
  EXPECT_TRUE(contains(answer, "Vary: Origin\r\n")) << answer;
  for (const char* other : {"http://page.test.evil", "http://page.tes", "HTTP://page.test", "null"}) {
    const std::string origin = std::string("Origin: ") + other + "\r\n";
    EXPECT_FALSE(contains(one.ask(asks + origin + "\r\n"), "Access-Control")) << other;
    EXPECT_FALSE(contains(one.ask(get("/", origin)), "Access-Control")) << other;
  }
}

TEST_F(HttpServerTest, WithoutAnOriginNoPageMayCall) {
  serve(echo);
  RawClient one = client();
  const std::string answer =
      one.ask("OPTIONS /v1 HTTP/1.1\r\nHost: test\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\n\r\n");
  EXPECT_TRUE(answer.ends_with("OPTIONS /v1 [] ")) << "it is the handler's: " << answer;
  EXPECT_FALSE(contains(answer, "Access-Control")) << answer;
  EXPECT_FALSE(contains(one.ask(get("/", "Origin: http://a\r\n")), "Access-Control"));
}

TEST_F(HttpServerTest, NamesTheAddressThatItCannotHave) {
  serve(echo);
  HttpOptions taken = any_port();
  taken.port = server->port();
  try {
    HttpServer second(taken, echo);
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what())
                  .find("cannot listen on '127.0.0.1:" + std::to_string(taken.port) + "': Address already in use"),
              0u)
        << error.what();
  }
  HttpOptions nowhere = any_port();
  nowhere.host = "no.such.host.invalid";
  EXPECT_THROW(HttpServer(nowhere, echo), Error);
  HttpOptions idle = any_port();
  idle.io_threads = 0;
  EXPECT_THROW(HttpServer(idle, echo), Error);
}

// What listening there is refused with.
std::string refusal_to_listen(const std::string& host, uint16_t port) {
  try {
    ListeningSocket::on_address(host, port);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ListeningSocket, AdvisesWhatTheSystemAllows) {
  const std::string foreign = refusal_to_listen("203.0.113.5", 0);  // of a network for documentation (RFC 5737)
  EXPECT_TRUE(contains(foreign, "Cannot assign requested address; try: an address that this machine has")) << foreign;
  int first_of_all = 0;  // the first port that anybody may have
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_of_all;
  std::string low;
  std::thread([&] {  // capabilities are a thread's
    const __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const __user_cap_data_struct none[2] = {};
    ASSERT_EQ(syscall(SYS_capset, &header, none), 0);
    low = refusal_to_listen("127.0.0.1", 1);
  })
      .join();
  if (first_of_all > 1)
    EXPECT_TRUE(contains(low, "Permission denied; try: a port from 1024 on")) << low;
  else
    EXPECT_EQ(low, "");
}

TEST_F(HttpServerTest, ListensOnAllKindsOfAddresses) {
  for (const char* host : {"localhost", "0.0.0.0", "::1"}) {
    HttpOptions options = any_port();
    options.host = host;
    try {
      serve(echo, options);
    } catch (const Error& error) {
      ASSERT_STREQ(host, "::1") << error.what();  // a machine without IPv6
      continue;
    }
    EXPECT_NE(server->port(), 0) << host;
  }
}

TEST_F(HttpServerTest, ListensAtAPathAndReplacesADeadServersFile) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("nodewright-http-" + std::to_string(getpid()) + ".sock");
  HttpOptions options;
  options.unix_socket = path;
  {
    // A server that died: its file is there, nobody listens.
    const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(dead, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    close(dead);
  }
  serve([](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) { reply->send(200, "", request.peer); },
        options);
  EXPECT_EQ(server->port(), 0);
  EXPECT_TRUE(RawClient(path).ask(get("/")).ends_with("unix"));
  EXPECT_THROW(HttpServer(options, echo), Error) << "a server lives there";
  EXPECT_TRUE(RawClient(path).ask(get("/")).ends_with("unix"));
  server->stop();
  EXPECT_FALSE(std::filesystem::exists(path));

  std::ofstream(path) << "somebody's file";
  EXPECT_THROW(HttpServer(options, echo), Error);
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
  options.unix_socket = "/" + std::string(200, 'a');
  EXPECT_THROW(HttpServer(options, echo), Error);
  options.unix_socket = "/no/such/folder/socket";
  EXPECT_THROW(HttpServer(options, echo), Error);
}

}  // namespace
}  // namespace nodewright
