#include "base/queued_writer.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>

namespace nodewright {
namespace {

constexpr int kLookMs = 100;          // how soon a stalled writer sees that it shall end
constexpr size_t kPieceBytes = 4096;  // PIPE_BUF: a pipe that poll() calls writable takes it without blocking
constexpr size_t kTextOverhead = 64;  // of an entry of the queue, beside its bytes

}  // namespace

struct QueuedWriter::State {
  State(int to, QueuedWriterOptions of) : descriptor(to), options(std::move(of)) {}

  void work();
  bool write_whole(std::string_view text);
  void tell_lost();

  const int descriptor;
  const QueuedWriterOptions options;
  std::atomic<uint64_t> dropped{0};
  std::atomic<int> error{0};
  std::atomic<bool> gives_up{false};
  uint64_t told = 0;  // of dropped; the thread's
  std::mutex mutex;   // of the rest
  std::condition_variable changed;
  std::deque<std::string> queue;
  size_t bytes = 0;
  bool ending = false, done = false, writing = false;
};

void QueuedWriter::State::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return ending || !queue.empty(); });
    if (queue.empty() || gives_up) break;
    const std::string text = std::move(queue.front());
    queue.pop_front();
    bytes -= text.size() + kTextOverhead;
    writing = true;
    lock.unlock();
    tell_lost();
    const bool written = (!options.ends_on_error || error == 0) && write_whole(text);
    lock.lock();
    if (!written && !gives_up) ++dropped;  // finish() has counted it
    writing = false;
    changed.notify_all();
  }
  lock.unlock();
  tell_lost();
  lock.lock();
  done = true;
  changed.notify_all();
}

// False where the descriptor refused, or nobody wants to wait any longer.
bool QueuedWriter::State::write_whole(std::string_view text) {
  if (descriptor < 0) {  // poll() waits for none
    error = EBADF;
    return false;
  }
  while (!text.empty()) {
    pollfd writable{.fd = descriptor, .events = POLLOUT, .revents = 0};
    if (poll(&writable, 1, kLookMs) == 0) {
      if (gives_up) return false;
      continue;
    }
    const ssize_t count = ::write(descriptor, text.data(), std::min(text.size(), kPieceBytes));
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno != EINTR && errno != EAGAIN) {
      int none = 0;
      error.compare_exchange_strong(none, errno);
      return false;
    }
  }
  return true;
}

void QueuedWriter::State::tell_lost() {
  const uint64_t now = dropped;
  if (now == told || options.lost_words.empty() || gives_up) return;
  if (write_whole(std::to_string(now - told) + " " + options.lost_words + "\n")) told = now;
}

QueuedWriter::QueuedWriter(int descriptor, QueuedWriterOptions options)
    : state_(std::make_shared<State>(descriptor, std::move(options))) {
  sigset_t all, before;
  sigfillset(&all);  // signals are for the thread that waits for them
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([state = state_] { state->work(); });
  pthread_setname_np(thread_.native_handle(), "log");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

QueuedWriter::~QueuedWriter() { finish(kPatience); }

void QueuedWriter::add(std::string text) noexcept {
  if (text.empty()) return;
  try {
    const std::lock_guard lock(state_->mutex);
    const size_t bytes = text.size() + kTextOverhead;
    if (!state_->ending && state_->bytes + bytes <= state_->options.queue_bytes) {
      state_->queue.push_back(std::move(text));
      state_->bytes += bytes;
      state_->changed.notify_all();
      return;
    }
  } catch (...) {  // no memory for it
  }
  ++state_->dropped;
}

uint64_t QueuedWriter::dropped() const noexcept { return state_->dropped; }

int QueuedWriter::error() const noexcept { return state_->error; }

bool QueuedWriter::settle(std::chrono::milliseconds patience) noexcept {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience, [this] { return state_->queue.empty() && !state_->writing; });
}

bool QueuedWriter::finish(std::chrono::milliseconds patience) noexcept {
  std::unique_lock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
  const bool left = state_->changed.wait_for(lock, patience, [this] { return state_->done; });
  if (!left) {
    state_->gives_up = true;
    state_->dropped += state_->queue.size() + (state_->writing ? 1 : 0);
    state_->queue.clear();
  }
  lock.unlock();
  if (!thread_.joinable()) return left;
  if (left)
    thread_.join();
  else
    thread_.detach();  // it owns a share of the state, and ends when the write that it is in does
  return left;
}

}  // namespace nodewright
