// Bytes of a connection to HTTP requests, within limits, by Boost.Beast's parser, which this header hides. No sockets.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/http_server.h"

namespace nodewright {

// Parses one connection's requests, one after another. Not thread-safe.
class RequestParser {
 public:
  // `check`: as HttpOptions::refuse_head; may be empty.
  using Check = std::function<std::optional<HttpRefusal>(const HttpRequest& head)>;
  explicit RequestParser(const HttpLimits& limits, Check check = {});
  ~RequestParser();

  // Where it is: idle before a request's first byte; whole until take(); refused for good.
  enum class State { idle, header, body, whole, refused };
  State state() const { return state_; }

  // Takes bytes up to the end of a request and returns how many it used. The others come again, with more after them:
  // they are the start of something, or of the next request.
  size_t feed(std::string_view bytes);

  // Whether the client waits for `100 Continue` before it sends the body: true once for a request, after its headers.
  bool take_expectation();

  // The request, without its peer, once whole. Then the parser is idle.
  HttpRequest take();

  // The part of the current or refused request that has arrived, without its body.
  HttpRequest head() const;
  // Bytes of the body that have arrived.
  size_t body_bytes() const;
  // Frees what came of a request that is refused.
  void drop();

  // The last taken request: whether the client knows chunks (HTTP/1.1), and wants the connection kept.
  bool knows_chunks() const { return knows_chunks_; }
  bool keeps_alive() const { return keeps_alive_; }

  // Why it was refused: the status that the client gets, and a sentence for it.
  int refusal_status() const { return refusal_status_; }
  const std::string& refusal() const { return refusal_; }
  // What `check` gave instead of the two.
  const std::optional<HttpRefusal>& checked_refusal() const { return checked_refusal_; }

 private:
  struct Beast;

  size_t feed_piece(std::string_view bytes);
  void check_head();
  void refuse(int status, std::string sentence);

  const HttpLimits limits_;
  const Check check_;
  std::unique_ptr<Beast> beast_;
  State state_ = State::idle;
  size_t head_bytes_ = 0;  // of this request, parsed
  bool expects_ = false;
  bool knows_chunks_ = true;
  bool keeps_alive_ = true;
  int refusal_status_ = 0;
  std::string refusal_;
  std::optional<HttpRefusal> checked_refusal_;
};

}  // namespace nodewright
