// An HTTP/1.1 server for answers that arrive in pieces: it reads whole requests, hands each to one handler, and sends
// what the handler's reply is given, at once or as server-sent events. It knows no URL, no JSON of the API, no file and
// no TLS.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nodewright {

class AnswerQueue;  // serve/http/answer_queue.h
class BodyShare;    // serve/http/body_budget.h

// Names and values, in the order in which they are sent or came.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// What a client may ask of the server's memory and patience. Times are kept to a quarter of a second.
struct HttpLimits {
  size_t header_bytes = 16 << 10;           // request line and headers together; beyond: 431
  size_t body_bytes = 32 << 20;             // beyond: 413, as soon as the length is known
  std::chrono::seconds header_timeout{10};  // from a request's first byte to the end of its headers; beyond: 408
  std::chrono::seconds body_timeout{60};    // for the body; beyond: 408; also for an answer of which no byte moves
  std::chrono::seconds idle_timeout{75};    // between requests; beyond: the connection is closed
  size_t queue_bytes = 4 << 20;             // of events that wait for their reader; beyond: it is cut off
  size_t bodies_bytes = 128 << 20;          // of all bodies together, those that handlers hold included; beyond: 503
  size_t connections = 4096;                // open at once; beyond: the oldest idle one of the thread makes room
  size_t kept_connections = 16;             // where none is idle: more, for HttpOptions::kept_paths alone
  size_t told_connections = 256;            // more, which get 503 at once; beyond: closed without an answer
};

// An answer that the server sends in place of the handler's; the connection closes.
struct HttpRefusal {
  int status = 400;
  std::string content_type, body;
  HttpHeaders headers;
};

struct HttpRequest;

// Where a server listens and whom it serves.
struct HttpOptions {
  std::string host = "127.0.0.1";     // a name or an address, IPv6 without brackets
  uint16_t port = 8000;               // 0: any that is free
  std::filesystem::path unix_socket;  // if not empty, this instead of host and port
  int io_threads = 1;                 // from 1; a connection stays on one of them
  HttpLimits limits;
  // The one origin whose pages may call, as browsers send it, or * for all; none: no page may.
  std::optional<std::string> cors_origin;
  HttpHeaders headers;                  // of every answer
  std::vector<std::string> kept_paths;  // what kept_connections may ask for
  // Asked of each request that has a body, before `100 Continue` is sent and a byte of the body is taken: a refusal is
  // sent instead. The others are the handler's. On an I/O thread, where it must not block. May be empty.
  std::function<std::optional<HttpRefusal>(const HttpRequest& head)> refuse_head;
  // Told of each answer that the server gives without the handler, because the request is malformed, too large or too
  // slow, or one connection too many, and of those that refuse_head gave; returns headers for it. `seen`: the peer, and
  // method, path and headers as far as they came. On an I/O thread, where it must not block. May be empty.
  std::function<HttpHeaders(const HttpRequest& seen, int status)> refused;
};

// A request that arrived whole. A value.
struct HttpRequest {
  std::string method;                           // as sent: GET, HEAD, POST
  std::string path;                             // from / to before ?, as sent, not decoded; * of OPTIONS *
  std::string query;                            // after ?, as sent
  std::string body;                             // with its chunks joined
  HttpHeaders headers;                          // as sent
  std::string peer;                             // 127.0.0.1:40312, [::1]:40312 or unix
  std::shared_ptr<const BodyShare> body_share;  // of HttpLimits::bodies_bytes: free once all copies are gone

  // The value of the first header of this name, in any case; empty if there is none.
  std::string_view header(std::string_view name) const;
};

// The answer to one request: send() alone, or begin_events(), write() as often as wanted, and end(). Every method may
// be called from any thread, and none blocks. Once the client is gone they do nothing. Throws Error when they are
// called in another order. Releasing the last reference without an answer sends a 500 or, within a stream, cuts the
// connection.
class HttpReply {
 public:
  explicit HttpReply(std::shared_ptr<AnswerQueue> queue);  // the server's
  ~HttpReply();
  HttpReply(const HttpReply&) = delete;
  HttpReply& operator=(const HttpReply&) = delete;

  // The whole answer. `status` is 200 to 599; throws Error otherwise. Line breaks in headers become spaces.
  void send(int status, std::string_view content_type, std::string body, const HttpHeaders& more = {});
  // A stream of events: 200, text/event-stream.
  void begin_events(const HttpHeaders& more = {});
  // Events as they shall arrive, `data: ...\n\n`. Pieces that wait for the connection leave together.
  void write(std::string events);
  // The last event has been written.
  void end();

  // Calls `told` once if the client hangs up or reads too slowly (limits.queue_bytes, body_timeout), or the server
  // stops, before end() or send(): on an I/O thread, where it must neither block nor throw, or after stop() on the
  // thread that calls when_gone(). A later call replaces `told`. It is destroyed with end(), so it may own what it
  // likes, but not this reply, which would then never be dropped.
  // A client that shuts down its sending side alone gets its answer: by HTTP/1.1 an early `100 Continue` finds out
  // whether it is still there; by HTTP/1.0 it counts as gone when nothing was sent for a moment.
  void when_gone(std::function<void()> told);

 private:
  std::shared_ptr<AnswerQueue> queue_;
};

// Called on an I/O thread, where it must not block. If it throws before it answered, the client gets a 500 with the
// exception's text.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

// Every method may be called from any thread. stop() and the destructor wait for the I/O threads, so no handler and no
// `told` may call them, and the caller holds no lock that these take. Replies may outlive the server.
class HttpServer {
 public:
  // Binds and listens: clients connect and wait for start(). A socket file that a dead server left is replaced. Throws
  // Error with the address and the system's reason.
  HttpServer(const HttpOptions& options, HttpHandler handler);
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Begins to serve. Once.
  void start();
  // Where it listens; 0 for a unix socket.
  uint16_t port() const;
  // Closes the listener and idle connections. Open requests go on, and their answers close their connections.
  void stop_accepting();
  // Requests that the handler got and whose answers have not left entirely.
  size_t open_requests() const;
  // Closes everything, and tells the replies that are open.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nodewright
