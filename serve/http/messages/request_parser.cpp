// Bytes of a connection to HTTP requests, by Boost.Beast's parser.
#include "serve/http/messages/request_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

#include "serve/http/messages/http_text.h"

namespace nodewright {
namespace {

namespace http = boost::beast::http;

std::string_view as_std(boost::beast::string_view text) { return {text.data(), text.size()}; }

// Without scheme and host, which a client that takes us for a proxy sends; empty if it is neither a path nor absolute.
std::string_view origin_form(std::string_view target, std::string_view method) {
  if (target.starts_with('/') || (target == "*" && method == "OPTIONS")) return target;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!same_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    if (path == std::string_view::npos) return "/";
    if (target[path] == '/') return target.substr(path);
  }
  return {};
}

// The request line too, once it is `whole`.
void fill_head(const http::request<http::string_body>& message, bool whole, HttpRequest& request) {
  for (const auto& field : message) request.headers.emplace_back(as_std(field.name_string()), as_std(field.value()));
  if (!whole) return;
  request.method = as_std(message.method_string());
  const std::string_view target = origin_form(as_std(message.target()), request.method);
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
}

}  // namespace

struct RequestParser::Beast {
  explicit Beast(const HttpLimits& limits) {
    parser.eager(false);  // until its headers have been checked
    parser.header_limit(static_cast<uint32_t>(limits.header_bytes));
    parser.body_limit(limits.body_bytes);
  }
  http::request_parser<http::string_body> parser;
};

RequestParser::RequestParser(const HttpLimits& limits, Check check) : limits_(limits), check_(std::move(check)) {}

RequestParser::~RequestParser() = default;

size_t RequestParser::feed(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && state_ != State::whole && state_ != State::refused) {
    if (state_ == State::idle) {
      // An empty line before a request does no harm (RFC 9112, 2.2).
      const size_t start = bytes.find_first_not_of("\r\n", used);
      used = std::min(start, bytes.size());
      if (used == bytes.size()) break;
      beast_ = std::make_unique<Beast>(limits_);
      head_bytes_ = 0;
      expects_ = false;
      state_ = State::header;
    }
    const size_t piece = feed_piece(bytes.substr(used));
    used += piece;
    if (piece == 0) break;
  }
  return used;
}

size_t RequestParser::feed_piece(std::string_view bytes) {
  const bool in_head = state_ == State::header;
  boost::system::error_code failure;
  const size_t used = beast_->parser.put(boost::asio::buffer(bytes.data(), bytes.size()), failure);
  if (in_head) head_bytes_ += used;
  const size_t rest = bytes.size() - used;
  const bool needs_more = failure == http::error::need_more;
  if (failure == http::error::header_limit ||
      (in_head && head_bytes_ + (needs_more ? rest : 0) > limits_.header_bytes)) {
    refuse(431, "the request line and headers have more than " + std::to_string(limits_.header_bytes) + " bytes");
  } else if (failure == http::error::body_limit || failure == http::error::buffer_overflow) {
    refuse(413, "the body has more than " + std::to_string(limits_.body_bytes) + " bytes");
  } else if (failure == http::error::bad_version) {
    refuse(400, "malformed request: its first line does not end with HTTP/1.1 or HTTP/1.0");
  } else if (failure && !needs_more) {
    refuse(400, "malformed request: " + failure.message());
  } else if (needs_more && rest > limits_.header_bytes) {
    refuse(400, "malformed request: a chunk's header has more than " + std::to_string(limits_.header_bytes) + " bytes");
  } else {
    if (in_head && beast_->parser.is_header_done()) check_head();
    if (state_ != State::refused && beast_->parser.is_done()) state_ = State::whole;
  }
  return used;
}

void RequestParser::check_head() {
  const auto& head = beast_->parser.get();
  state_ = State::body;
  beast_->parser.eager(true);
  knows_chunks_ = head.version() >= 11;
  keeps_alive_ = knows_chunks_ && head.keep_alive();
  const std::string_view method = as_std(head.method_string());
  const std::string_view target = as_std(head.target());
  if (origin_form(target, method).empty()) return refuse(400, "malformed request: the target is no path");
  if (knows_chunks_ && head.count(http::field::host) != 1) {
    return refuse(400,
                  "malformed request: " + std::to_string(head.count(http::field::host)) + " Host headers, expected 1");
  }
  if (head.count(http::field::transfer_encoding) != 0 &&
      !same_ignoring_case(as_std(head[http::field::transfer_encoding]), "chunked")) {
    return refuse(501, "the only transfer encoding known is chunked");
  }
  const std::string_view expectation = as_std(head[http::field::expect]);
  if (!expectation.empty() && knows_chunks_ && !same_ignoring_case(expectation, "100-continue")) {
    return refuse(417, "the only expectation known is 100-continue");
  }
  const bool has_body = !beast_->parser.is_done();
  expects_ = !expectation.empty() && knows_chunks_ && has_body;
  if (!has_body || !check_) return;
  checked_refusal_ = check_(this->head());
  if (checked_refusal_) refuse(checked_refusal_->status, {});
}

bool RequestParser::take_expectation() { return std::exchange(expects_, false); }

HttpRequest RequestParser::head() const {
  HttpRequest head;
  if (beast_ != nullptr) fill_head(beast_->parser.get(), beast_->parser.is_header_done(), head);
  return head;
}

size_t RequestParser::body_bytes() const {
  return beast_ != nullptr && beast_->parser.is_header_done() ? beast_->parser.get().body().size() : 0;
}

void RequestParser::drop() { beast_.reset(); }

HttpRequest RequestParser::take() {
  auto message = beast_->parser.release();
  beast_.reset();
  state_ = State::idle;
  HttpRequest request;
  fill_head(message, true, request);
  request.body = std::move(message.body());
  return request;
}

void RequestParser::refuse(int status, std::string sentence) {
  state_ = State::refused;
  refusal_status_ = status;
  refusal_ = std::move(sentence);
}

}  // namespace nodewright
