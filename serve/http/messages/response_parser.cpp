// Bytes of a connection to an HTTP answer, by Boost.Beast's parser.
#include "serve/http/messages/response_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

namespace nodewright {

namespace http = boost::beast::http;

struct ResponseParser::Beast {
  explicit Beast(bool head) {
    parser.eager(true);
    parser.skip(head);
    parser.header_limit(64 << 10);
    parser.body_limit(boost::none);  // the client trusts the server that it calls
  }
  http::response_parser<http::string_body> parser;
};

ResponseParser::ResponseParser(bool head) : head_(head), beast_(std::make_unique<Beast>(head)) {}

ResponseParser::~ResponseParser() = default;

void ResponseParser::feed(std::string_view bytes) {
  waiting_ += bytes;
  size_t used = 0;
  while (failure_.empty() && used < waiting_.size()) {
    if (beast_->parser.is_done()) {
      failure_ = "bytes behind the end of the answer";
      break;
    }
    boost::system::error_code result;
    used += beast_->parser.put(boost::asio::buffer(waiting_.data() + used, waiting_.size() - used), result);
    if (result == http::error::need_more) break;
    if (result) failure_ = "malformed answer: " + result.message();
    if (beast_->parser.is_done() && status() / 100 == 1) beast_ = std::make_unique<Beast>(head_);
  }
  waiting_.erase(0, used);
}

void ResponseParser::end() {
  if (is_whole() || !failure_.empty()) return;
  boost::system::error_code result;
  if (beast_->parser.got_some()) beast_->parser.put_eof(result);
  if (result || !is_whole()) failure_ = "the server closed the connection before the answer was complete";
}

bool ResponseParser::has_head() const { return beast_->parser.is_header_done() && status() / 100 != 1; }

bool ResponseParser::is_whole() const { return beast_->parser.is_done() && failure_.empty(); }

int ResponseParser::status() const { return static_cast<int>(beast_->parser.get().result_int()); }

HttpHeaders ResponseParser::headers() const {
  HttpHeaders headers;
  for (const auto& field : beast_->parser.get()) {
    headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  return headers;
}

bool ResponseParser::keeps_alive() const { return beast_->parser.get().keep_alive(); }

std::string ResponseParser::take_body() { return std::exchange(beast_->parser.get().body(), {}); }

}  // namespace nodewright
