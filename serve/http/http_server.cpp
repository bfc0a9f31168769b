// HttpServer: accepts connections, deals them out to the I/O threads, and ends both.
#include "serve/http/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/error.h"
#include "serve/http/connection_loop.h"
#include "serve/http/sockets/listening_socket.h"

namespace nodewright {
namespace {

using Loops = std::vector<std::shared_ptr<ConnectionLoop>>;

constexpr std::chrono::milliseconds kPauseWithoutFiles{100};  // before accept() is tried again
constexpr int kMostThreads = 64;

}  // namespace

// The listening socket, watched by the first loop. On that loop's thread, port() apart.
class HttpAcceptor : public std::enable_shared_from_this<HttpAcceptor> {
 public:
  HttpAcceptor(const Loops& loops, ListeningSocket socket)
      : loops_(loops),
        file_(std::move(socket)),
        port_(file_.port()),
        watched_(loops[0]->io, file_.release()),
        pause_(loops[0]->io) {}

  void watch() {
    if (watched_.descriptor() < 0) return;
    watched_.when_readable([self = shared_from_this()] { self->accept_one(); });
  }
  void close() {
    pause_.cancel();
    watched_.close();
    file_.close();
  }
  uint16_t port() const { return port_; }

 private:
  void accept_one();

  const Loops loops_;
  ListeningSocket file_;  // of a unix socket
  const uint16_t port_;
  WatchedDescriptor watched_;
  IoTimer pause_;
  size_t next_ = 0;
};

void HttpAcceptor::accept_one() {
  const int descriptor = accept4(watched_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    if (loops_[0]->close_oldest_idle()) return watch();
    for (const std::shared_ptr<ConnectionLoop>& loop : loops_) loop->io.post([loop] { loop->close_oldest_idle(); });
    pause_.after(kPauseWithoutFiles, [self = shared_from_this()] { self->watch(); });
    return;
  }
  Serving& serving = *loops_[0]->serving;
  const HttpLimits& limits = serving.options.limits;
  const size_t most = limits.connections + limits.kept_connections + limits.told_connections;
  if (descriptor >= 0 && ++serving.connections > most) {
    --serving.connections;
    ::close(descriptor);
  } else if (descriptor >= 0) {
    const std::shared_ptr<ConnectionLoop>& loop = loops_[next_++ % loops_.size()];
    loop->io.post([loop, descriptor] { loop->add(descriptor); });
  }
  watch();
}

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, HttpHandler handler);

  void start();
  void stop_accepting();
  void stop();

  const std::shared_ptr<Serving> serving = std::make_shared<Serving>();
  std::shared_ptr<HttpAcceptor> acceptor;

 private:
  void close_on(ConnectionLoop& loop);
  void call_on(ConnectionLoop& loop, const std::function<void()>& call);

  Loops loops_;
  std::mutex mutex_;  // of starting and stopping
  std::vector<std::thread> threads_;
  bool stopped_ = false;
};

HttpServer::Impl::Impl(const HttpOptions& options, HttpHandler handler) {
  if (options.io_threads < 1 || options.io_threads > kMostThreads) {
    throw Error({.doing = "start a server",
                 .object = "io_threads",
                 .detail = std::to_string(options.io_threads) + ", expected 1 to " + std::to_string(kMostThreads),
                 .fault = Fault::usage});
  }
  serving->options = options;
  serving->handler = std::move(handler);
  ListeningSocket socket = options.unix_socket.empty() ? ListeningSocket::on_address(options.host, options.port)
                                                       : ListeningSocket::at_path(options.unix_socket);
  for (int i = 0; i < options.io_threads; ++i) loops_.push_back(std::make_shared<ConnectionLoop>(serving));
  acceptor = std::make_shared<HttpAcceptor>(loops_, std::move(socket));
}

void HttpServer::Impl::start() {
  const std::lock_guard lock(mutex_);
  if (stopped_ || !threads_.empty()) {
    throw Error({.doing = "start a server", .object = "HttpServer", .detail = "it was started or stopped before"});
  }
  loops_[0]->io.post([this] { acceptor->watch(); });
  for (const auto& loop : loops_) {
    threads_.emplace_back([loop] { loop->io.run(); });
    pthread_setname_np(threads_.back().native_handle(), "http");
  }
}

void HttpServer::Impl::stop_accepting() {
  serving->closing = true;
  const bool inside =
      std::any_of(loops_.begin(), loops_.end(), [](const auto& loop) { return loop->io.on_its_thread(); });
  if (inside) {  // a handler's call: to wait for the loops, its own among them, would be to wait for ever
    for (const auto& loop : loops_) loop->io.post([this, loop] { close_on(*loop); });
    return;
  }
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  if (threads_.empty()) return acceptor->close();
  for (const auto& loop : loops_) call_on(*loop, [&] { close_on(*loop); });
}

void HttpServer::Impl::close_on(ConnectionLoop& loop) {
  if (&loop == loops_[0].get()) acceptor->close();
  loop.close_idle();
}

void HttpServer::Impl::stop() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(stopped_, true)) return;
  const bool started = !threads_.empty();
  loops_[0]->io.post([this] {
    acceptor->close();  // which posts no more connections: those posted come before the closing of all
    for (const auto& loop : loops_) {
      loop->io.post([loop] { loop->close_all(); });
      loop->io.finish();
    }
  });
  if (!started) {
    for (const auto& loop : loops_) loop->io.run();
  }
  for (std::thread& thread : threads_) thread.join();
  serving->handler = nullptr;  // replies may live on, and what the handler owns shall not
}

// Waits for the call on the loop's thread.
void HttpServer::Impl::call_on(ConnectionLoop& loop, const std::function<void()>& call) {
  std::promise<void> done;
  loop.io.post([&] {
    call();
    done.set_value();
  });
  done.get_future().wait();
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler)
    : impl_(std::make_unique<Impl>(options, std::move(handler))) {}

HttpServer::~HttpServer() { impl_->stop(); }

void HttpServer::start() { impl_->start(); }

uint16_t HttpServer::port() const { return impl_->acceptor->port(); }

void HttpServer::stop_accepting() { impl_->stop_accepting(); }

size_t HttpServer::open_requests() const { return impl_->serving->open_requests; }

void HttpServer::stop() { impl_->stop(); }

}  // namespace nodewright
