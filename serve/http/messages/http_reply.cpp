// HttpReply and HttpRequest: what a handler holds of a connection.
#include <utility>

#include "serve/http/answer_queue.h"
#include "serve/http/http_server.h"
#include "serve/http/messages/http_text.h"

namespace nodewright {

std::string_view HttpRequest::header(std::string_view name) const { return header_value(headers, name); }

HttpReply::HttpReply(std::shared_ptr<AnswerQueue> queue) : queue_(std::move(queue)) {}

HttpReply::~HttpReply() {
  try {
    queue_->fail("the request was dropped without an answer");
  } catch (...) {  // no memory for a message: the client waits until it hangs up
  }
}

void HttpReply::send(int status, std::string_view content_type, std::string body, const HttpHeaders& more) {
  queue_->send(status, content_type, std::move(body), more);
}

void HttpReply::begin_events(const HttpHeaders& more) { queue_->begin_events(more); }

void HttpReply::write(std::string events) { queue_->write(events); }

void HttpReply::end() { queue_->end(); }

void HttpReply::when_gone(std::function<void()> told) { queue_->when_gone(std::move(told)); }

}  // namespace nodewright
