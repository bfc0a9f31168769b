// A connection of the server: its requests one after another, and their answers.
#include "serve/http/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "runtime/error.h"
#include "serve/http/http_text.h"
#include "serve/http/listening_socket.h"

namespace nodewright {
namespace {

constexpr int kReadsInTurn = 8;             // of one connection, then others have theirs
constexpr std::chrono::seconds kLinger{5};  // for a client to read the last answer before the close

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

class ConnectionHost : public AnswerHost {
 public:
  ConnectionHost(std::shared_ptr<ConnectionLoop> loop, std::weak_ptr<Connection> connection)
      : loop_(std::move(loop)), connection_(std::move(connection)) {}
  void wake() override { loop_->wake(connection_); }
  void post(std::function<void()> call) override { loop_->post(std::move(call)); }

 private:
  const std::shared_ptr<ConnectionLoop> loop_;
  const std::weak_ptr<Connection> connection_;
};

}  // namespace

Connection::Connection(std::shared_ptr<ConnectionLoop> loop, int descriptor)
    : loop_(std::move(loop)),
      serving_(*loop_->serving),
      limits_(serving_.options.limits),
      socket_(loop_->io, descriptor),
      parser_(limits_) {}

void Connection::start(bool too_many) {
  stage_ = Stage::reading;
  host_ = std::make_shared<ConnectionHost>(loop_, weak_from_this());
  peer_ = peer_name(socket_.descriptor());
  const int yes = 1;
  setsockopt(socket_.descriptor(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));  // a unix socket refuses: no matter
  wait_for(limits_.idle_timeout);
  if (too_many) refuse(503, "the server has all the connections that it may have");
  watch_reads();
  flush();
}

// What a step throws (no memory) ends this connection, not its thread.
void Connection::guarded(void (Connection::*step)()) {
  try {
    (this->*step)();
  } catch (...) {
    close();
  }
}

void Connection::watch_reads() {
  if (reads_watched_ || is_full() || stage_ == Stage::closed) return;
  reads_watched_ = true;
  socket_.when_readable([self = shared_from_this()] {
    self->reads_watched_ = false;
    self->guarded(&Connection::read_what_there_is);
  });
}

void Connection::read_what_there_is() {
  for (int turn = 0; turn < kReadsInTurn && stage_ != Stage::closed && !is_full(); ++turn) {
    const ssize_t count = recv(socket_.descriptor(), loop_->read_bytes.data(), kReadBytes, MSG_DONTWAIT);
    if (count < 0 && would_block()) break;
    if (count <= 0) return close();  // the client has hung up
    receive({loop_->read_bytes.data(), static_cast<size_t>(count)});
    if (static_cast<size_t>(count) < kReadBytes) break;
  }
  send_what_there_is();
  watch_reads();
}

void Connection::receive(std::string_view bytes) {
  if (stage_ == Stage::leaving) return;
  if (stage_ == Stage::reading && unread_.empty()) bytes.remove_prefix(parse(bytes));  // mostly all of them
  unread_.erase(0, parsed_);
  parsed_ = 0;
  unread_ += bytes;
  if (stage_ == Stage::reading && unread_.size() > bytes.size()) parse_unread();
}

void Connection::parse_unread() {
  parsed_ += parse(std::string_view(unread_).substr(parsed_));
  if (parsed_ < unread_.size() && stage_ != Stage::leaving) return;
  unread_ = std::string();
  parsed_ = 0;
}

size_t Connection::parse(std::string_view bytes) {
  using State = RequestParser::State;
  const State before = parser_.state();
  const size_t used = parser_.feed(bytes);
  const State now = parser_.state();
  if (now == State::refused) {
    refuse(parser_.refusal_status(), parser_.refusal());
  } else if (now == State::whole) {
    hand_over();
  } else if (now != before) {
    wait_for(now == State::header ? limits_.header_timeout : limits_.body_timeout);
  }
  if (now == State::body && parser_.take_expectation() && used == bytes.size()) out_ += "HTTP/1.1 100 Continue\r\n\r\n";
  return used;
}

void Connection::hand_over() {
  HttpRequest request = parser_.take();
  request.peer = peer_;
  stage_ = Stage::answering;
  deadline_ = IoClock::time_point::max();
  close_after_ = !parser_.keeps_alive();
  all_taken_ = false;
  const std::optional<std::string>& origin = serving_.options.cors_origin;
  AnswerForm form{.chunked = parser_.knows_chunks(),
                  .head_only = request.method == "HEAD",
                  .headers = cors_lines(origin, request.header("Origin"))};
  answer_ = std::make_shared<AnswerQueue>(std::move(form), limits_.queue_bytes, host_);
  ++serving_.open_requests;
  if (is_allowed_preflight(origin, request)) {
    answer_->send(204, "", "", preflight_headers(request));
  } else {
    call_handler(std::move(request));
  }
}

void Connection::call_handler(HttpRequest request) {
  const std::shared_ptr<AnswerQueue> answer = answer_;
  try {
    const auto reply = std::make_shared<HttpReply>(answer);
    try {
      serving_.handler(std::move(request), reply);
    } catch (const std::exception& thrown) {
      answer->fail(thrown.what());
    } catch (...) {
      answer->fail("the handler failed");
    }
  } catch (const Error&) {  // another thread answered while the handler threw
  }
}

// Answers without the handler and leaves. Nothing is under way.
void Connection::refuse(int status, std::string_view sentence) {
  const std::string body = error_body(status, sentence);
  HttpHeaders more;
  if (const auto& refused = serving_.options.refused) {
    HttpRequest seen{.headers = parser_.headers()};
    seen.peer = peer_;
    more = refused(seen, status);
  }
  out_ += head_text(
      {.status = status, .content_type = "application/json", .content_length = body.size(), .close = true}, "", more);
  out_ += body;
  leave();
}

void Connection::check_deadline(IoClock::time_point now) {
  if (now < deadline_) return;
  if (stage_ != Stage::reading || is_idle()) return close();
  refuse(408, "the request did not arrive in time");
  flush();
}

void Connection::send_what_there_is() {
  if (answer_ && writes_watched_ && answer_->is_cut()) return cut_off();
  while (stage_ != Stage::closed && !writes_watched_ && (sent_ < out_.size() || refill())) {
    const ssize_t count =
        send(socket_.descriptor(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      sent_ += static_cast<size_t>(count);
    } else if (would_block()) {
      if (stage_ == Stage::answering) wait_for(limits_.body_timeout);
      writes_watched_ = true;
      socket_.when_writable([self = shared_from_this()] {
        self->writes_watched_ = false;
        if (self->stage_ == Stage::answering) self->deadline_ = IoClock::time_point::max();
        self->flush();
      });
    } else {
      close();
    }
  }
}

// All of out_ has left: whether there is more.
bool Connection::refill() {
  out_.clear();
  sent_ = 0;
  while (stage_ == Stage::answering && out_.empty()) {
    if (all_taken_) {
      finish_answer();
      continue;
    }
    const bool close_then = close_after_ || serving_.closing;
    const AnswerQueue::Taken taken = answer_->take(out_, close_then);
    close_after_ = close_after_ || (close_then && !out_.empty());
    if (taken == AnswerQueue::Taken::cut) cut_off();
    all_taken_ = taken == AnswerQueue::Taken::all;
    if (!all_taken_) break;
  }
  if (stage_ == Stage::leaving && out_.empty()) shutdown(socket_.descriptor(), SHUT_WR);
  return !out_.empty();
}

void Connection::finish_answer() {
  answer_.reset();
  --serving_.open_requests;
  if (close_after_ || serving_.closing) return leave();
  stage_ = Stage::reading;
  if (out_.capacity() > kReadBytes) out_ = std::string();
  wait_for(limits_.idle_timeout);
  if (!unread_.empty()) parse_unread();
  watch_reads();
}

void Connection::leave() {
  stage_ = Stage::leaving;
  wait_for(kLinger);
}

// With a reset, so that the client sees that this was not all.
void Connection::cut_off() {
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_.descriptor(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  close();
}

void Connection::close() {
  if (stage_ == Stage::closed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  stage_ = Stage::closed;
  socket_.close();
  loop_->connections.erase(self);
  --serving_.connections;
  if (const std::shared_ptr<AnswerQueue> answer = std::exchange(answer_, nullptr)) {
    --serving_.open_requests;
    answer->lose();
  }
}

}  // namespace nodewright
