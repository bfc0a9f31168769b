// Bytes of a connection to an HTTP answer, by Boost.Beast's parser, which this header hides. The client's; no sockets.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "serve/http/http_server.h"

namespace nodewright {

// Parses one answer; skips interim ones (100 Continue). Not thread-safe.
class ResponseParser {
 public:
  // `head`: the request's method was HEAD, so that the answer has no body.
  explicit ResponseParser(bool head);
  ~ResponseParser();

  // The bytes that come, in pieces of any size.
  void feed(std::string_view bytes);
  // The server has closed the connection.
  void end();

  bool has_head() const;  // status and headers are there
  bool is_whole() const;
  const std::string& failure() const { return failure_; }  // not empty: it is malformed, or ended too soon

  // Once has_head().
  int status() const;
  HttpHeaders headers() const;
  bool keeps_alive() const;

  // What has come of the body since the last call.
  std::string take_body();

 private:
  struct Beast;

  const bool head_;
  std::unique_ptr<Beast> beast_;
  std::string waiting_;  // the start of something
  std::string failure_;
};

}  // namespace nodewright
