// A file written while something else must not wait: by a thread of its own, whole texts at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/queued_writer.h"

namespace nodewright {

// Not thread-safe. A file that cannot be written any more ends with what it has; a disk or a pipe that stands still
// loses texts once `queue_bytes` wait.
class QueuedFile {
 public:
  // Creates it, or empties it. Throws Error with the system's reason.
  QueuedFile(const std::filesystem::path& path, size_t queue_bytes);
  ~QueuedFile() { close(); }
  QueuedFile(const QueuedFile&) = delete;
  QueuedFile& operator=(const QueuedFile&) = delete;

  void add(std::string text) noexcept { writer_->add(std::move(text)); }
  // For the first text, so that a disk that is full is known before anything else is done: whether it was written.
  bool settle() noexcept;
  int error() const noexcept { return writer_->error(); }           // errno of the write that ended it; 0: none
  uint64_t dropped() const noexcept { return writer_->dropped(); }  // texts
  // Waits a moment for what is queued. Afterwards nothing is added.
  void close() noexcept;

 private:
  int descriptor_ = -1;
  std::optional<QueuedWriter> writer_;
};

}  // namespace nodewright
