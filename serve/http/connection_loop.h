// The connections of one I/O thread: wakes those whose answers have something to send, all together, and keeps their
// deadlines.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "serve/http/body_budget.h"
#include "serve/http/http_server.h"
#include "serve/http/sockets/io_loop.h"

namespace nodewright {

class Connection;
using IoClock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 64 << 10;  // of one read

// What all I/O threads share. The counts and `closing` may be read and set by any thread.
struct Serving {
  HttpOptions options;
  HttpHandler handler;
  std::atomic<size_t> open_requests{0};
  std::atomic<size_t> connections{0};  // those that are being refused included
  const BodyShare::Used body_bytes = std::make_shared<std::atomic<size_t>>(0);
  std::atomic<bool> closing{false};  // answers close their connections
};

// Belongs to one I/O thread, which alone may touch it, wake() and post() apart.
class ConnectionLoop : public std::enable_shared_from_this<ConnectionLoop> {
 public:
  explicit ConnectionLoop(std::shared_ptr<Serving> all) : serving(std::move(all)), clock_(io) {}

  // From any thread: the connection sends what it has, soon. Nothing once close_all() was called.
  void wake(std::weak_ptr<Connection> connection);
  // From any thread: `call` on the loop's thread, or at once after close_all().
  void post(std::function<void()> call);

  // Takes over a socket that the system has accepted and `serving->connections` counts.
  void add(int descriptor);
  // Closes the connection that has waited longest for a request, or for its last answer to be read: whether there was
  // one.
  bool close_oldest_idle();
  // Closes those that wait for a request.
  void close_idle();
  // Closes all, for good.
  void close_all();

  IoLoop io;
  const std::shared_ptr<Serving> serving;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::array<char, kReadBytes> read_bytes;  // where each connection reads in its turn

 private:
  void serve_woken();
  void tick();
  std::vector<std::shared_ptr<Connection>> all() const { return {connections.begin(), connections.end()}; }

  IoTimer clock_;
  bool ticking_ = false;
  std::mutex mutex_;  // of the members below
  std::vector<std::weak_ptr<Connection>> woken_;
  bool closed_ = false;
};

}  // namespace nodewright
