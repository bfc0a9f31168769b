#include "cli/output/say.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/queued_writer.h"
#include "base/visible_text.h"

namespace nodewright::cli {
namespace {

constexpr size_t kMostBytes = 64 << 10;  // of one text; the report of a start has 2 KB
constexpr size_t kQueueBytes = 1 << 20;  // 5000 lines of an access log

// Never destroyed: a thread may be stuck in a write when the process ends.
std::atomic<QueuedWriter*> writer = nullptr;

void write_here(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = ::write(STDERR_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

void draw(std::string text) noexcept {
  if (QueuedWriter* const queue = writer)
    queue->add(std::move(text));
  else
    write_here(text);
}

void say_text(std::string_view text) noexcept {
  try {
    std::string shown = visible_text(text.substr(0, kMostBytes));
    if (text.size() > kMostBytes) shown += "...\n";
    draw(std::move(shown));
  } catch (...) {  // no memory for it
  }
}

void say_from_a_thread() {
  if (writer == nullptr)
    writer = new QueuedWriter(STDERR_FILENO,
                              {.queue_bytes = kQueueBytes,
                               .lost_words = "lines are missing before this one: standard error did not take them"});
}

uint64_t lines_dropped() noexcept {
  const QueuedWriter* const queue = writer;
  return queue == nullptr ? 0 : queue->dropped();
}

void finish_saying() noexcept {
  if (QueuedWriter* const queue = writer) queue->finish(QueuedWriter::kPatience);
}

void hold_standard_descriptors() noexcept {
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(each, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one. Opened for the other direction: uses fail as they do of a closed one.
    (void)!open("/dev/null", each == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace nodewright::cli
