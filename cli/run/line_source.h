// Request lines as they come: a thread reads and tokenizes them while others are served.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/run/request_lines.h"
#include "runtime/error.h"

namespace nodewright::cli {

// Lines that come through a pipe are read so far ahead of those that are served: a writer that is faster waits.
inline constexpr size_t kMostLinesAhead = size_t{1} << 16;

class LineSource {
 public:
  // `path`: "-" is standard input. Throws Error (usage) where it cannot be opened.
  LineSource(const std::string& path, LineReader reader);
  ~LineSource();
  LineSource(const LineSource&) = delete;
  LineSource& operator=(const LineSource&) = delete;

  // Whether it is a file, whose reading ends by itself; a pipe or a terminal may stay open.
  bool is_file() const { return is_file_; }
  // Nothing more will come: it has ended, it could not be read on, or stop() was called.
  bool ended() const;
  // What has come since the last call.
  std::vector<RequestLine> take();
  // Until there is something to take, or it has ended, or the time has come.
  void wait(std::chrono::steady_clock::time_point until);
  // Until it has ended, or the time has come.
  void wait_for_end(std::chrono::steady_clock::time_point until);
  // Reads no more.
  void stop();
  // Why it could not be read to its end.
  std::optional<Error> failure() const;

 private:
  void read();
  bool wait_readable() const;
  void deliver(const std::string& text, int64_t number);
  void end(std::optional<Error> failure);

  std::string name_;
  int file_ = -1;
  bool is_file_ = false;
  int wake_[2] = {-1, -1};  // a pipe: something to read there ends the thread
  LineReader reader_;
  mutable std::mutex mutex_;
  std::condition_variable changed_, taken_;
  std::vector<RequestLine> lines_;
  bool ended_ = false;
  std::atomic<bool> stopped_ = false;
  std::optional<Error> failure_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nodewright::cli
