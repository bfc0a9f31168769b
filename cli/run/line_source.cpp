#include "cli/run/line_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_to_read.h"

namespace nodewright::cli {
namespace {

[[noreturn]] void refuse_file(const std::string& name, int problem) {
  throw Error({.doing = "read", .object = name, .detail = std::strerror(problem), .fault = Fault::usage});
}

}  // namespace

LineSource::LineSource(const std::string& path, LineReader reader)
    : name_(path == "-" ? "standard input" : path), reader_(std::move(reader)) {
  file_ =
      path == "-" ? STDIN_FILENO : open_to_read(path, {.doing = "read", .takes_pipes = true, .fault = Fault::usage});
  struct stat status {};
  if (fstat(file_, &status) != 0) refuse_file(name_, errno);
  if (S_ISDIR(status.st_mode)) refuse_file(name_, EISDIR);
  is_file_ = S_ISREG(status.st_mode);
  if (pipe2(wake_, O_CLOEXEC) != 0) refuse_file(name_, errno);
  thread_ = std::thread([this] { read(); });
}

LineSource::~LineSource() {
  stop();
  thread_.join();
  for (const int end : wake_) close(end);
  if (file_ != STDIN_FILENO) close(file_);
}

bool LineSource::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::vector<RequestLine> LineSource::take() {
  const std::lock_guard lock(mutex_);
  taken_.notify_all();
  return std::exchange(lines_, {});
}

void LineSource::wait(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [this] { return ended_ || !lines_.empty(); });
}

void LineSource::wait_for_end(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [this] { return ended_; });
}

void LineSource::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_.exchange(true)) return;
  }
  taken_.notify_all();
  while (write(wake_[1], "", 1) < 0 && errno == EINTR) continue;
}

std::optional<Error> LineSource::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// The thread

void LineSource::read() {
  std::string text;  // of the line that is not complete yet
  std::vector<char> block(size_t{1} << 16);
  int64_t number = 0;
  while (wait_readable()) {
    const ssize_t bytes = ::read(file_, block.data(), block.size());
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (bytes < 0) return end(Error({.doing = "read", .object = name_, .detail = std::strerror(errno)}));
    if (bytes == 0) break;
    for (const char *at = block.data(), *last = at + bytes; at < last;) {
      const void* found = std::memchr(at, '\n', static_cast<size_t>(last - at));
      const char* line_end = found != nullptr ? static_cast<const char*>(found) : last;
      text.append(at, line_end);
      at = line_end + 1;
      if (found != nullptr) deliver(std::exchange(text, {}), ++number);
    }
  }
  if (!stopped_) deliver(text, ++number);  // a last line may lack its end
  end(std::nullopt);
}

// False when it is to end.
bool LineSource::wait_readable() const {
  pollfd ends[] = {{.fd = file_, .events = POLLIN, .revents = 0}, {.fd = wake_[0], .events = POLLIN, .revents = 0}};
  while (!stopped_)
    if (poll(ends, 2, -1) > 0) return (ends[1].revents & POLLIN) == 0;
  return false;
}

void LineSource::deliver(const std::string& text, int64_t number) {
  if (text.find_first_not_of(" \t\r") == std::string::npos) return;
  RequestLine line = reader_.read(text, number);
  std::unique_lock lock(mutex_);
  taken_.wait(lock, [this] { return is_file_ || stopped_ || lines_.size() < kMostLinesAhead; });
  lines_.push_back(std::move(line));
  changed_.notify_all();
}

void LineSource::end(std::optional<Error> failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace nodewright::cli
