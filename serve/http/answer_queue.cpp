// What a reply has been given and its connection has not sent.
#include "serve/http/answer_queue.h"

#include <array>
#include <charconv>
#include <utility>

#include "runtime/error.h"
#include "serve/http/messages/http_text.h"

namespace nodewright {

AnswerQueue::AnswerQueue(AnswerForm form, size_t queue_bytes, std::shared_ptr<AnswerHost> host)
    : form_(std::move(form)), queue_bytes_(queue_bytes), host_(std::move(host)) {}

void AnswerQueue::send(int status, std::string_view content_type, std::string body, const HttpHeaders& more) {
  if (status < 200 || status > 599) {
    throw Error(
        {.doing = "send an answer", .object = std::to_string(status), .detail = "expected a status 200 to 599"});
  }
  std::function<void()> told;  // destroyed without the lock: it may own anything
  std::unique_lock lock(mutex_);
  require(Stage::nothing, "send an answer");
  stage_ = Stage::whole;
  told.swap(told_);
  if (lost_) return;
  status_ = status;
  content_type_ = content_type;
  more_ = more;
  waiting_ = std::move(body);
  wake_once(lock);
}

void AnswerQueue::begin_events(const HttpHeaders& more) {
  std::unique_lock lock(mutex_);
  require(Stage::nothing, "begin a stream of events");
  stage_ = Stage::stream;
  if (lost_) return;
  content_type_ = "text/event-stream";
  more_ = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  more_.insert(more_.end(), more.begin(), more.end());
  wake_once(lock);
}

void AnswerQueue::write(std::string_view events) {
  std::unique_lock lock(mutex_);
  require(Stage::stream, "write events");
  if (lost_ || cut_ || events.empty() || form_.head_only) return;
  if (waiting_.size() + leaving_ > queue_bytes_) {
    cut(lock);
  } else {
    waiting_ += events;
    wake_once(lock);
  }
}

void AnswerQueue::end() {
  std::function<void()> told;
  std::unique_lock lock(mutex_);
  require(Stage::stream, "end a stream of events");
  stage_ = Stage::ended;
  told.swap(told_);
  if (!lost_) wake_once(lock);
}

void AnswerQueue::when_gone(std::function<void()> told) {
  std::unique_lock lock(mutex_);
  if (stage_ == Stage::whole || stage_ == Stage::ended) return;
  if (!lost_) {
    told_.swap(told);  // the one before goes when this function returns, without the lock
    lock.unlock();
    return;
  }
  lock.unlock();
  if (told) host_->post(std::move(told));
}

void AnswerQueue::fail(std::string_view message) {
  std::unique_lock lock(mutex_);
  if (stage_ == Stage::nothing) {
    lock.unlock();
    send(500, "application/json", error_body(500, message), {});
  } else if (stage_ == Stage::stream && !lost_) {
    cut(lock);
  }
}

AnswerQueue::Taken AnswerQueue::take(std::string& out, bool close) {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  leaving_ = 0;
  if (cut_) return Taken::cut;
  if (stage_ == Stage::nothing) return Taken::more_comes;
  if (!head_taken_) append_head(out, close);
  if (stage_ == Stage::whole) {
    if (!form_.head_only && status_ != 204 && status_ != 304) out += waiting_;
    waiting_ = std::string();
    return Taken::all;
  }
  const bool framed = form_.chunked && !form_.head_only;
  if (!waiting_.empty()) {
    leaving_ = waiting_.size();
    if (framed) {
      std::array<char, 16> digits{};
      const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), leaving_, 16).ptr;
      out.append(std::string_view(digits.data(), end)).append("\r\n");
    }
    out += waiting_;
    if (framed) out += "\r\n";
    waiting_.clear();  // keeps its memory for the next step
  }
  if (stage_ != Stage::ended) return Taken::more_comes;
  if (framed) out += "0\r\n\r\n";
  return Taken::all;
}

bool AnswerQueue::is_cut() {
  const std::lock_guard lock(mutex_);
  return cut_;
}

void AnswerQueue::lose() {
  std::function<void()> told;
  {
    const std::lock_guard lock(mutex_);
    lost_ = true;
    waiting_ = std::string();
    told.swap(told_);
  }
  if (!told) return;
  try {
    told();
  } catch (...) {  // when_gone() forbids it; the I/O thread serves others
  }
}

void AnswerQueue::require(Stage stage, const char* doing) const {
  if (stage_ == stage) return;
  static constexpr const char* kStages[] = {"nothing", "a whole answer", "a stream of events", "a stream that ended"};
  throw Error({.doing = doing,
               .object = "HttpReply",
               .detail = std::string("it has been given ") + kStages[static_cast<int>(stage_)] + ", expected " +
                         kStages[static_cast<int>(stage)]});
}

void AnswerQueue::wake_once(std::unique_lock<std::mutex>& lock) {
  if (std::exchange(woken_, true)) return;
  lock.unlock();
  host_->wake();
}

// Wakes the connection though it was woken before: one that cannot send does not take, and would not come.
void AnswerQueue::cut(std::unique_lock<std::mutex>& lock) {
  cut_ = true;
  waiting_ = std::string();
  woken_ = false;
  wake_once(lock);
}

void AnswerQueue::append_head(std::string& out, bool close) {
  head_taken_ = true;
  const bool whole = stage_ == Stage::whole;
  AnswerHead head{.status = status_, .content_type = content_type_, .close = close};
  if (whole && status_ != 204 && status_ != 304) head.content_length = waiting_.size();
  head.chunked = !whole && form_.chunked;
  out += head_text(head, form_.headers, more_);
}

}  // namespace nodewright
