// Requests out of bytes: whole, in pieces, malformed, too large.
#include "serve/http/messages/request_parser.h"

#include <gtest/gtest.h>

#include <vector>

namespace nodewright {
namespace {

using State = RequestParser::State;

constexpr std::string_view kPost =
    "POST /v1/chat?x=1&y=%20 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Two:  b c \r\n"
    "Content-Length: 11\r\n\r\nhello world";
constexpr std::string_view kChunked =
    "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5;name=v\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";

// Feeds pieces of this many bytes as a connection does: what was not used comes again.
State feed_in_pieces(RequestParser& parser, std::string_view bytes, size_t piece) {
  std::string waiting;
  while (!bytes.empty() && parser.state() != State::refused) {
    waiting += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    waiting.erase(0, parser.feed(waiting));
  }
  return parser.state();
}

int status_of(std::string_view bytes, const HttpLimits& limits = {}) {
  RequestParser parser(limits);
  feed_in_pieces(parser, bytes, bytes.size());
  RequestParser slow(limits);
  feed_in_pieces(slow, bytes, 1);
  EXPECT_EQ(parser.refusal_status(), slow.refusal_status()) << bytes;
  EXPECT_EQ(parser.state(), slow.state()) << bytes;
  return parser.state() == State::whole ? 200 : parser.refusal_status();
}

TEST(RequestParser, ReadsARequestInPiecesOfAnySize) {
  for (size_t piece = 1; piece <= kPost.size(); ++piece) {
    RequestParser parser(HttpLimits{});
    ASSERT_EQ(feed_in_pieces(parser, kPost, piece), State::whole) << piece;
    const HttpRequest request = parser.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/chat");
    EXPECT_EQ(request.query, "x=1&y=%20");
    EXPECT_EQ(request.body, "hello world");
    EXPECT_EQ(request.header("content-TYPE"), "application/json");
    EXPECT_EQ(request.header("X-Two"), "b c");
    EXPECT_EQ(request.header("X-Three"), "");
    EXPECT_TRUE(parser.keeps_alive());
    EXPECT_EQ(parser.state(), State::idle);
  }
}

TEST(RequestParser, JoinsChunksOfAnySize) {
  for (size_t piece = 1; piece <= kChunked.size(); ++piece) {
    RequestParser parser(HttpLimits{});
    ASSERT_EQ(feed_in_pieces(parser, kChunked, piece), State::whole) << piece << ": " << parser.refusal();
    EXPECT_EQ(parser.take().body, "hello world");
  }
}

TEST(RequestParser, AnEmptyChunkedBodyMayComeInPieces) {
  const std::string_view empty =
      "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n";
  for (size_t piece = 1; piece <= empty.size(); ++piece) {
    RequestParser parser(HttpLimits{});
    ASSERT_EQ(feed_in_pieces(parser, empty, piece), State::whole) << piece << ": " << parser.refusal();
    EXPECT_EQ(parser.take().body, "");
  }
}

TEST(RequestParser, StopsAtTheEndOfARequest) {
  RequestParser parser(HttpLimits{});
  const std::string two = std::string(kPost) + "\r\n" + std::string(kChunked);
  const size_t used = parser.feed(two);
  EXPECT_EQ(used, kPost.size());
  parser.take();
  EXPECT_EQ(parser.feed(std::string_view(two).substr(used)), two.size() - used);
  ASSERT_EQ(parser.state(), State::whole);
  EXPECT_EQ(parser.take().path, "/c");
}

TEST(RequestParser, TakesTheFormsOfTargetsThatClientsSend) {
  const auto path_of = [](const std::string& line) {
    RequestParser parser(HttpLimits{});
    parser.feed(line + " HTTP/1.1\r\nHost: a\r\n\r\n");
    return parser.state() == State::whole ? parser.take().path : "refused " + std::to_string(parser.refusal_status());
  };
  EXPECT_EQ(path_of("GET /a/b"), "/a/b");
  EXPECT_EQ(path_of("GET http://a:80/a/b?c"), "/a/b");
  EXPECT_EQ(path_of("GET HTTP://a"), "/");
  EXPECT_EQ(path_of("OPTIONS *"), "*");
  EXPECT_EQ(path_of("GET *"), "refused 400");
  EXPECT_EQ(path_of("GET a/b"), "refused 400");
  EXPECT_EQ(path_of("CONNECT a:80"), "refused 400");
}

TEST(RequestParser, RefusesMalformedRequestsWith400) {
  const std::vector<std::string> malformed = {
      "\x16\x03\x01\x02\x00\x01\x00\x01 TLS\r\n\r\n",
      "GET\r\n\r\n",
      "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
      "GET / HTTP/0.9\r\nHost: a\r\n\r\n",
      "GET /\r\n\r\n",
      "G<T / HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
      std::string("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 29),
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
  };
  for (const std::string& bytes : malformed) {
    EXPECT_EQ(status_of(bytes), 400) << bytes;
  }
}

TEST(RequestParser, RefusesWhatItDoesNotKnowByItsStatus) {
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"), 501);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), 501);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\nContent-Length: 1\r\n\r\n"), 417);
}

TEST(RequestParser, RefusesHeadsBeyondTheLimitHoweverTheyArrive) {
  const HttpLimits limits{.header_bytes = 200};
  EXPECT_EQ(status_of("GET /" + std::string(300, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", limits), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(300, 'a') + "\r\n\r\n", limits), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(100, 'a') + "\r\n\r\n", limits), 200);
  // A line at a time: Beast counts what is left of a head, not what it has read.
  const std::string line = "Name: of 20 bytes.\r\n";
  std::string head = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 20; ++i) head += line;
  RequestParser parser(limits);
  size_t used = 0;
  for (size_t came = 17; came < head.size() && parser.state() != State::refused; came += line.size()) {
    used += parser.feed(std::string_view(head).substr(used, came - used));  // a line, and a byte of the next
  }
  EXPECT_EQ(parser.refusal_status(), 431);
}

TEST(RequestParser, RefusesBodiesBeyondTheLimitBeforeTheyCome) {
  const HttpLimits limits{.body_bytes = 10};
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", limits), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789", limits), 200);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_of(chunked + "6\r\n012345\r\n5\r\n", limits), 413);
  EXPECT_EQ(status_of(chunked + "5\r\n01234\r\n5\r\n01234\r\n0\r\n\r\n", limits), 200);
}

TEST(RequestParser, RefusesAChunkHeaderWithoutEnd) {
  const HttpLimits limits{.header_bytes = 200};
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_of(chunked + "5;" + std::string(300, 'x'), limits), 400);
  EXPECT_EQ(status_of(chunked + "0\r\nTrailer: " + std::string(300, 'x'), limits), 400);
}

TEST(RequestParser, KnowsWhoKeepsTheConnection) {
  const auto keeps = [](const std::string& bytes) {
    RequestParser parser(HttpLimits{});
    parser.feed(bytes);
    EXPECT_EQ(parser.state(), State::whole);
    parser.take();
    return parser.keeps_alive();
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
}

TEST(RequestParser, SaysOnceThatTheClientWaitsForContinue) {
  RequestParser parser(HttpLimits{});
  parser.feed("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n");
  EXPECT_EQ(parser.state(), State::body);
  EXPECT_TRUE(parser.take_expectation());
  EXPECT_FALSE(parser.take_expectation());
  parser.feed("x");
  EXPECT_EQ(parser.state(), State::whole);
}

}  // namespace
}  // namespace nodewright
