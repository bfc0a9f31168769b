// A connection of the server: its requests one after another, and their answers.
#include "serve/http/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/error.h"
#include "serve/http/messages/http_text.h"
#include "serve/http/sockets/listening_socket.h"

namespace nodewright {
namespace {

constexpr int kReadsInTurn = 8;                   // of one connection, then others have theirs
constexpr std::chrono::seconds kLinger{5};        // for a client to read the last answer before the close
constexpr std::chrono::seconds kKeptPatience{2};  // for a head, where there are no other places
constexpr std::chrono::milliseconds kHalfClosedGrace{
    300};  // for short answers, before a client that sends no more is probed
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr const char* kTooMany = "the server has all the connections that it may have";

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
      parser_(limits_, [this](const HttpRequest& head) -> std::optional<HttpRefusal> {
        if (!may_ask_for(head.path)) return HttpRefusal{503, "application/json", error_body(503, kTooMany), {}};
        return serving_.options.refuse_head ? serving_.options.refuse_head(head) : std::nullopt;
      }) {}

void Connection::start(Place place) {
  place_ = place;
  stage_ = Stage::reading;
  host_ = std::make_shared<ConnectionHost>(loop_, weak_from_this());
  peer_ = peer_name(socket_.descriptor());
  const int yes = 1;
  setsockopt(socket_.descriptor(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));  // a unix socket refuses: no matter
  wait_for(place == Place::kept ? kKeptPatience : limits_.idle_timeout);
  if (place == Place::none) refuse(503, kTooMany);
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
  if (reads_watched_ || reads_ended_ || is_full() || stage_ == Stage::closed) return;
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
    if (count < 0) return close();
    if (count == 0) return end_of_reads();
    receive({loop_->read_bytes.data(), static_cast<size_t>(count)});
    if (static_cast<size_t>(count) < kReadBytes) break;
  }
  send_what_there_is();
  watch_reads();
}

// The client has hung up, or says that it sends no more and waits for its answer.
void Connection::end_of_reads() {
  if (stage_ != Stage::answering) return close();
  reads_ended_ = true;
  ended_at_ = IoClock::now();
  send_what_there_is();
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
    if (const std::optional<HttpRefusal>& checked = parser_.checked_refusal())
      refuse(parser_.head(), *checked);
    else
      refuse(parser_.refusal_status(), parser_.refusal());
  } else if (!charge_body()) {
    refuse(503, "the bodies of all requests together have more than " + std::to_string(limits_.bodies_bytes >> 20) +
                    " MiB; try again");
  } else if (now == State::whole) {
    hand_over();
  } else if (now != before) {
    wait_for(now == State::header ? limits_.header_timeout : limits_.body_timeout);
  }
  if (stage_ == Stage::reading && now == State::body && parser_.take_expectation() && used == bytes.size())
    out_ += kContinue;
  return used;
}

// What came of the body, against the budget of all.
bool Connection::charge_body() {
  const size_t bytes = parser_.body_bytes();
  if (bytes == 0) return true;
  if (!body_share_) body_share_ = std::make_shared<BodyShare>(serving_.body_bytes, limits_.bodies_bytes);
  return body_share_->grow_to(bytes);
}

bool Connection::may_ask_for(std::string_view path) const {
  const std::vector<std::string>& kept = serving_.options.kept_paths;
  return place_ == Place::usual || std::find(kept.begin(), kept.end(), path) != kept.end();
}

std::string Connection::fixed_lines(std::string_view origin) const {
  return cors_lines(serving_.options.cors_origin, origin) + header_lines(serving_.options.headers);
}

void Connection::hand_over() {
  if (place_ != Place::usual && !may_ask_for(parser_.head().path)) return refuse(503, kTooMany);
  HttpRequest request = parser_.take();
  request.peer = peer_;
  request.body_share = std::exchange(body_share_, nullptr);
  stage_ = Stage::answering;
  deadline_ = IoClock::time_point::max();
  close_after_ = !parser_.keeps_alive() || place_ != Place::usual;
  all_taken_ = answer_begun_ = probed_ = false;
  ended_at_ = IoClock::now();
  const std::optional<std::string>& origin = serving_.options.cors_origin;
  head_only_ = request.method == "HEAD";
  AnswerForm form{
      .chunked = parser_.knows_chunks(), .head_only = head_only_, .headers = fixed_lines(request.header("Origin"))};
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

void Connection::refuse(int status, std::string_view sentence) {
  HttpRequest seen = parser_.head();
  seen.method = seen.path = {};  // of a request line that may be nonsense
  refuse(std::move(seen), {status, "application/json", error_body(status, sentence), {}});
}

// Answers without the handler and leaves. Nothing is under way.
void Connection::refuse(HttpRequest seen, const HttpRefusal& refusal) {
  seen.peer = peer_;
  HttpHeaders more = refusal.headers;
  if (const auto& refused = serving_.options.refused) {
    const HttpHeaders its = refused(seen, refusal.status);
    more.insert(more.end(), its.begin(), its.end());
  }
  out_ += head_text({.status = refusal.status,
                     .content_type = refusal.content_type,
                     .content_length = refusal.body.size(),
                     .close = true},
                    fixed_lines(seen.header("Origin")), more);
  if (seen.method != "HEAD") out_ += refusal.body;
  leave();
}

void Connection::check_deadline(IoClock::time_point now) {
  if (reads_ended_ && stage_ == Stage::answering) look_for_hang_up(now);
  if (now < deadline_) return;
  if (place_ == Place::kept && is_idle()) {
    refuse(503, kTooMany);
    return flush();
  }
  if (stage_ != Stage::reading || is_idle()) return close();
  refuse(408, "the request did not arrive in time");
  flush();
}

// A client that sends no more may be gone, which only bytes that it refuses tell. Before its answer begins these are
// `100 Continue`, which every client of HTTP/1.1 passes over; within a stream a zero before the next chunk's length.
void Connection::look_for_hang_up(IoClock::time_point now) {
  pollfd state{.fd = socket_.descriptor(), .events = 0, .revents = 0};
  if (poll(&state, 1, 0) > 0) return close();
  if (probed_ || !out_.empty() || all_taken_ || now < ended_at_ + kHalfClosedGrace) return;
  if (!parser_.knows_chunks()) return close();
  if (answer_begun_ && head_only_) return;
  probed_ = true;
  out_ = answer_begun_ ? "0" : kContinue;
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
    answer_begun_ = answer_begun_ || !out_.empty();
    all_taken_ = taken == AnswerQueue::Taken::all;
    if (!all_taken_) break;
  }
  if (stage_ == Stage::leaving && out_.empty()) {
    if (reads_ended_)
      close();
    else
      shutdown(socket_.descriptor(), SHUT_WR);
  }
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
  if (reads_ended_ && stage_ == Stage::reading) return leave();
  watch_reads();
}

void Connection::leave() {
  stage_ = Stage::leaving;
  parser_.drop();
  body_share_.reset();
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
