#include "base/queued_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr std::chrono::seconds kLastTexts{2};         // for a queue that leaves slowly
constexpr std::chrono::milliseconds kFirstText{500};  // no start waits longer for a disk that stands still

}  // namespace

QueuedFile::QueuedFile(const std::filesystem::path& path, size_t queue_bytes) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw Error({.doing = "write", .object = path.string(), .detail = std::strerror(errno)});
  writer_.emplace(descriptor_,
                  QueuedWriterOptions{.queue_bytes = queue_bytes, .lost_words = {}, .ends_on_error = true});
}

bool QueuedFile::settle() noexcept { return writer_->settle(kFirstText) && writer_->dropped() == 0; }

void QueuedFile::close() noexcept {
  const bool left = writer_->finish(kLastTexts);
  const int descriptor = std::exchange(descriptor_, -1);
  if (left && descriptor >= 0) ::close(descriptor);  // otherwise its thread still has it
}

}  // namespace nodewright
