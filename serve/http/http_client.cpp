// An HTTP client for many calls at once on one thread of its own.
#include "serve/http/http_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/error.h"
#include "serve/http/messages/event_lines.h"
#include "serve/http/messages/http_text.h"
#include "serve/http/messages/response_parser.h"
#include "serve/http/sockets/io_loop.h"

namespace nodewright {
namespace {

bool try_again_later() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == EINPROGRESS; }

}  // namespace

// On the client's thread. Tells its owner when its call is done, and when it is of no more use.
class ClientConnection : public std::enable_shared_from_this<ClientConnection> {
 public:
  struct Ends {
    std::function<void(uint64_t call)> done;
    std::function<void(const std::shared_ptr<ClientConnection>&)> free;  // for another call
    std::function<void(const std::shared_ptr<ClientConnection>&)> closed;
  };

  ClientConnection(IoLoop& loop, int descriptor, const Ends& ends) : socket_(loop, descriptor), ends_(ends) {
    const int yes = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));  // a unix socket refuses: no matter
  }

  void begin(uint64_t number, std::shared_ptr<HttpCall> call, std::string text) {
    number_ = number;
    call_ = std::move(call);
    parser_ = std::make_unique<ResponseParser>(call_->method == "HEAD");
    lines_ = EventLines();
    answer_ = HttpAnswer();
    has_head_ = false;
    out_ = std::move(text);
    sent_ = 0;
    send_what_there_is();
    watch_reads();
  }
  void close(const std::string& failure);

 private:
  void send_what_there_is();
  void watch_reads();
  void read_what_there_is();
  void take_answer(std::chrono::steady_clock::time_point arrived);
  void finish();

  WatchedDescriptor socket_;
  const Ends& ends_;
  uint64_t number_ = 0;
  std::shared_ptr<HttpCall> call_;
  std::unique_ptr<ResponseParser> parser_;
  EventLines lines_;
  HttpAnswer answer_;
  bool has_head_ = false, has_events_ = false;
  bool reads_watched_ = false, closed_ = false;
  std::string out_;
  size_t sent_ = 0;  // of out_
};

void ClientConnection::send_what_there_is() {
  while (!closed_ && sent_ < out_.size()) {
    const ssize_t count =
        send(socket_.descriptor(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      sent_ += static_cast<size_t>(count);
    } else if (try_again_later() || errno == ENOTCONN) {  // or it is still connecting
      socket_.when_writable([self = shared_from_this()] { self->send_what_there_is(); });
      return;
    } else {
      const std::string reason = std::strerror(errno);
      if (errno == EPIPE || errno == ECONNRESET)
        read_what_there_is();  // a server that refuses a body answers before its end
      if (!closed_ && call_) close("cannot send: " + reason);
      return;
    }
  }
}

void ClientConnection::watch_reads() {
  if (closed_ || std::exchange(reads_watched_, true)) return;
  socket_.when_readable([self = shared_from_this()] {
    self->reads_watched_ = false;
    self->read_what_there_is();
    self->watch_reads();
  });
}

void ClientConnection::read_what_there_is() {
  std::array<char, 32768> bytes;
  while (!closed_) {
    const ssize_t count = recv(socket_.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && try_again_later()) return;
    const auto arrived = std::chrono::steady_clock::now();
    if (!call_) return close("");  // nothing may come between calls
    if (count < 0) return close(std::strerror(errno));
    count == 0 ? parser_->end() : parser_->feed({bytes.data(), static_cast<size_t>(count)});
    take_answer(arrived);
    if (count == 0 && !closed_) return close("");
    if (static_cast<size_t>(count) < bytes.size()) return;
  }
}

void ClientConnection::take_answer(std::chrono::steady_clock::time_point arrived) {
  if (parser_->has_head() && !std::exchange(has_head_, true)) {
    answer_.status = parser_->status();
    answer_.headers = parser_->headers();
    has_events_ = call_->on_event && header_value(answer_.headers, "Content-Type").starts_with("text/event-stream");
  }
  if (has_head_ && has_events_) {
    for (const std::string& data : lines_.feed(parser_->take_body())) call_->on_event(data, arrived);
  } else if (has_head_) {
    answer_.body += parser_->take_body();
  }
  if (!parser_->failure().empty()) {
    close(parser_->failure());
  } else if (parser_->is_whole()) {
    finish();
  }
}

void ClientConnection::finish() {
  const bool stays = parser_->keeps_alive() && sent_ == out_.size();
  const std::shared_ptr<HttpCall> call = std::exchange(call_, nullptr);
  const std::shared_ptr<ClientConnection> self = shared_from_this();
  ends_.done(number_);
  stays ? ends_.free(self) : close("");
  call->on_done(std::move(answer_));  // may begin another call
}

// With a call under way: it fails.
void ClientConnection::close(const std::string& failure) {
  if (std::exchange(closed_, true)) return;
  const std::shared_ptr<ClientConnection> self = shared_from_this();
  socket_.close();
  ends_.closed(self);
  if (const std::shared_ptr<HttpCall> call = std::exchange(call_, nullptr)) {
    ends_.done(number_);
    answer_.failure = failure.empty() ? "the server closed the connection" : failure;
    call->on_done(std::move(answer_));
  }
}

class HttpClient::Impl {
 public:
  explicit Impl(const HttpPlace& place);
  ~Impl();
  uint64_t call(HttpCall call);
  void cancel(uint64_t number);
  size_t open_calls() const { return open_calls_; }

 private:
  void begin(uint64_t number, const std::shared_ptr<HttpCall>& call);
  std::shared_ptr<ClientConnection> free_connection();
  std::string request_text(const HttpCall& call) const;

  const HttpPlace place_;
  const SocketAddress address_;
  std::atomic<uint64_t> next_{1};
  std::atomic<size_t> open_calls_{0};
  ClientConnection::Ends ends_;
  IoLoop loop_;
  // On the loop's thread.
  std::unordered_map<uint64_t, std::shared_ptr<ClientConnection>> busy_;  // by the numbers of their calls
  std::vector<std::shared_ptr<ClientConnection>> free_;
  bool ending_ = false;
  std::thread thread_;
};

HttpClient::Impl::Impl(const HttpPlace& place) : place_(place), address_(address_of(place)) {
  ends_.done = [this](uint64_t number) {
    busy_.erase(number);
    --open_calls_;
  };
  ends_.free = [this](const auto& connection) { free_.push_back(connection); };
  ends_.closed = [this](const auto& connection) { std::erase(free_, connection); };
  thread_ = std::thread([this] { loop_.run(); });
}

HttpClient::Impl::~Impl() {
  loop_.post([this] {
    ending_ = true;
    for (const auto& [number, connection] : std::unordered_map(busy_)) connection->close("the client ended");
    for (const auto& connection : std::vector(free_)) connection->close("");
    loop_.finish();
  });
  thread_.join();
}

uint64_t HttpClient::Impl::call(HttpCall call) {
  const uint64_t number = next_++;
  ++open_calls_;
  loop_.post([this, number, call = std::make_shared<HttpCall>(std::move(call))] { begin(number, call); });
  return number;
}

void HttpClient::Impl::cancel(uint64_t number) {
  loop_.post([this, number] {
    const auto found = busy_.find(number);
    if (found != busy_.end()) std::shared_ptr(found->second)->close("the call was cancelled");
  });
}

void HttpClient::Impl::begin(uint64_t number, const std::shared_ptr<HttpCall>& call) {
  HttpAnswer none;
  try {
    if (!ending_) {
      const std::shared_ptr<ClientConnection> connection = free_connection();
      busy_.emplace(number, connection);
      return connection->begin(number, call, request_text(*call));
    }
    none.failure = "the client ended";
  } catch (const std::exception& thrown) {
    none.failure = thrown.what();
    busy_.erase(number);
  }
  --open_calls_;
  call->on_done(std::move(none));
}

std::shared_ptr<ClientConnection> HttpClient::Impl::free_connection() {
  if (!free_.empty()) {
    const std::shared_ptr<ClientConnection> connection = std::move(free_.back());  // the last used: surely still open
    free_.pop_back();
    return connection;
  }
  const int descriptor = socket(address_.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) throw Error({.doing = "open a socket", .driver = std::strerror(errno)});
  const auto connection = std::make_shared<ClientConnection>(loop_, descriptor, ends_);
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address_.bytes), address_.size) != 0 &&
      errno != EINPROGRESS) {
    throw Error({.doing = "connect to", .object = place_.host, .driver = std::strerror(errno)});
  }
  return connection;
}

std::string HttpClient::Impl::request_text(const HttpCall& call) const {
  std::string text = call.method + ' ' + place_.prefix + call.path + " HTTP/1.1\r\nHost: " + place_.host + "\r\n";
  for (const auto& [name, value] : call.headers) text += name + ": " + value + "\r\n";
  if (!call.body.empty() || call.method == "POST")
    text += "Content-Length: " + std::to_string(call.body.size()) + "\r\n";
  return text + "\r\n" + call.body;
}

HttpClient::HttpClient(const HttpPlace& place) : impl_(std::make_unique<Impl>(place)) {}

HttpClient::~HttpClient() = default;

uint64_t HttpClient::call(HttpCall call) { return impl_->call(std::move(call)); }

void HttpClient::cancel(uint64_t call) { impl_->cancel(call); }

size_t HttpClient::open_calls() const { return impl_->open_calls(); }

}  // namespace nodewright
