// An HTTP client for many calls at once on one thread of its own: for tests, and for measuring a server. Connections
// are kept and used again. No TLS, no proxies, no redirects.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "serve/http/http_server.h"
#include "serve/http/sockets/http_place.h"

namespace nodewright {

// What came of a call.
struct HttpAnswer {
  int status = 0;  // 0: none came
  HttpHeaders headers;
  std::string body;     // without events that on_event got
  std::string failure;  // not empty: why the answer is missing or incomplete
};

// A request, and the callbacks for its answer: they run on the client's thread and may neither block nor throw.
struct HttpCall {
  std::string method = "POST";
  std::string path;  // from /, with its query
  std::string body;
  HttpHeaders headers = {{"Content-Type", "application/json"}};
  // Each event of a stream: its data, and when the bytes that completed it were read. If empty, they are in the body.
  std::function<void(std::string_view data, std::chrono::steady_clock::time_point arrived)> on_event;
  // Once, last.
  std::function<void(HttpAnswer answer)> on_done;
};

// Every method may be called from any thread, the destructor from none of the callbacks.
class HttpClient {
 public:
  // Looks up the name, which may take a while; connects with the first call. Throws Error.
  explicit HttpClient(const HttpPlace& place);
  ~HttpClient();  // open calls fail before it returns
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends it on a connection that is free, or a new one. Returns its number, for cancel().
  uint64_t call(HttpCall call);
  // Hangs up: the call fails, unless it is done.
  void cancel(uint64_t call);
  // Not done yet.
  size_t open_calls() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nodewright
