// An event loop on Boost.Asio.
#include "serve/http/sockets/io_loop.h"

#include <unistd.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>
#include <utility>

#include "runtime/error.h"

namespace nodewright {

namespace asio = boost::asio;
using boost::system::error_code;

struct IoLoop::Asio {
  asio::io_context context{1};  // one thread runs it
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(context);
  std::atomic<std::thread::id> thread{};
};

IoLoop::IoLoop() : asio_(std::make_unique<Asio>()) {}

IoLoop::~IoLoop() = default;

void IoLoop::run() {
  asio_->thread = std::this_thread::get_id();
  for (bool threw = true; threw;) {
    threw = false;
    try {
      asio_->context.run();
    } catch (...) {  // who posts catches what matters; the loop serves others
      threw = true;
    }
  }
  asio_->thread = std::thread::id();
}

void IoLoop::finish() {
  asio::post(asio_->context, [this] { asio_->work.reset(); });
}

void IoLoop::post(std::function<void()> call) { asio::post(asio_->context, std::move(call)); }

bool IoLoop::on_its_thread() const { return asio_->thread == std::this_thread::get_id(); }

struct WatchedDescriptor::Asio {
  asio::posix::stream_descriptor descriptor;
};

WatchedDescriptor::WatchedDescriptor(IoLoop& loop, int descriptor)
    : asio_(std::make_unique<Asio>(asio::posix::stream_descriptor(loop.asio_->context))) {
  error_code failure;
  asio_->descriptor.assign(descriptor, failure);
  if (!failure) return;
  ::close(descriptor);
  throw Error({.doing = "watch a socket", .object = std::to_string(descriptor), .detail = failure.message()});
}

WatchedDescriptor::~WatchedDescriptor() { close(); }

void WatchedDescriptor::when_readable(std::function<void()> call) {
  asio_->descriptor.async_wait(asio::posix::stream_descriptor::wait_read, [call = std::move(call)](error_code failure) {
    if (failure != asio::error::operation_aborted) call();
  });
}

void WatchedDescriptor::when_writable(std::function<void()> call) {
  asio_->descriptor.async_wait(asio::posix::stream_descriptor::wait_write,
                               [call = std::move(call)](error_code failure) {
                                 if (failure != asio::error::operation_aborted) call();
                               });
}

void WatchedDescriptor::close() {
  error_code ignored;
  asio_->descriptor.close(ignored);
}

int WatchedDescriptor::descriptor() const {
  return asio_->descriptor.is_open() ? asio_->descriptor.native_handle() : -1;
}

struct IoTimer::Asio {
  asio::steady_timer timer;
};

IoTimer::IoTimer(IoLoop& loop) : asio_(std::make_unique<Asio>(asio::steady_timer(loop.asio_->context))) {}

IoTimer::~IoTimer() { cancel(); }

void IoTimer::after(std::chrono::milliseconds time, std::function<void()> call) {
  asio_->timer.expires_after(time);
  asio_->timer.async_wait([call = std::move(call)](error_code failure) {
    if (!failure) call();
  });
}

void IoTimer::cancel() { asio_->timer.cancel(); }

}  // namespace nodewright
