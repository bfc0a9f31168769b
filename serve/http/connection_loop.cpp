// The connections of one I/O thread.
#include "serve/http/connection_loop.h"

#include <utility>

#include "serve/http/connection.h"

namespace nodewright {
namespace {

constexpr std::chrono::milliseconds kTick{250};  // how exactly HttpLimits says that times are kept

}  // namespace

void ConnectionLoop::wake(std::weak_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  woken_.push_back(std::move(connection));
  if (woken_.size() == 1) io.post([self = shared_from_this()] { self->serve_woken(); });
}

void ConnectionLoop::post(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      io.post(std::move(call));
      return;
    }
  }
  call();
}

void ConnectionLoop::serve_woken() {
  std::vector<std::weak_ptr<Connection>> woken;
  {
    const std::lock_guard lock(mutex_);
    woken.swap(woken_);
  }
  for (const std::weak_ptr<Connection>& each : woken) {
    if (const std::shared_ptr<Connection> connection = each.lock()) connection->flush();
  }
}

void ConnectionLoop::add(int descriptor) {
  const HttpLimits& limits = serving->options.limits;
  if (serving->connections > limits.connections) close_oldest_idle();
  std::shared_ptr<Connection> connection;
  try {
    connection = std::make_shared<Connection>(shared_from_this(), descriptor);
    connections.insert(connection);
  } catch (...) {  // no memory, or no place in the system's table of watched files
    --serving->connections;
    return;
  }
  const size_t count = serving->connections;
  const size_t kept = serving->options.kept_paths.empty() ? 0 : limits.kept_connections;
  connection->start(count <= limits.connections          ? Connection::Place::usual
                    : count <= limits.connections + kept ? Connection::Place::kept
                                                         : Connection::Place::none);
  if (!std::exchange(ticking_, true)) tick();
}

void ConnectionLoop::tick() {
  clock_.after(kTick, [self = shared_from_this()] {
    self->ticking_ = !self->connections.empty();
    if (!self->ticking_) return;
    const IoClock::time_point now = IoClock::now();
    for (const auto& connection : self->all()) connection->check_deadline(now);
    self->tick();
  });
}

bool ConnectionLoop::close_oldest_idle() {
  std::shared_ptr<Connection> oldest;
  for (const std::shared_ptr<Connection>& each : connections)
    if (each->may_make_room() && (!oldest || each->deadline() < oldest->deadline())) oldest = each;
  if (oldest) oldest->close();
  return oldest != nullptr;
}

void ConnectionLoop::close_idle() {
  for (const auto& connection : all()) {
    if (connection->is_idle()) connection->close();
  }
}

void ConnectionLoop::close_all() {
  for (const auto& connection : all()) connection->close();
  clock_.cancel();
  const std::lock_guard lock(mutex_);
  closed_ = true;
  woken_.clear();
}

}  // namespace nodewright
