// Lines to descriptors that are closed, full, stalled, or read late.
#include "base/queued_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/queued_file.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using std::chrono::seconds;

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_, O_CLOEXEC) != 0) std::abort();
  }
  ~Pipe() {
    for (const int end : ends_) ::close(end);
  }
  int in() const { return ends_[1]; }
  // At least `bytes` bytes, or all that arrive before 20 s of silence.
  std::string read(size_t bytes) {
    std::string text;
    char piece[65536];
    pollfd readable{.fd = ends_[0], .events = POLLIN, .revents = 0};
    while (text.size() < bytes && poll(&readable, 1, 20000) > 0)
      text.append(piece, static_cast<size_t>(std::max<ssize_t>(::read(ends_[0], piece, sizeof(piece)), 0)));
    return text;
  }
  std::string read_until(std::string_view words) {
    std::string text = read(1);
    while (text.find(words) == std::string::npos) {
      const std::string more = read(1);
      if (more.empty()) break;
      text += more;
    }
    return text;
  }

 private:
  int ends_[2] = {-1, -1};
};

// What the lines "N lines are missing" sum up to, read until that is `wanted`: a queue that has emptied meanwhile has
// several.
uint64_t lines_missing(Pipe& pipe, uint64_t wanted) {
  constexpr std::string_view kWords = " lines are missing\n";
  std::string text;
  while (true) {
    uint64_t sum = 0;
    for (size_t at = text.find(kWords); at != std::string::npos; at = text.find(kWords, at + 1))
      sum += std::stoull(text.substr(text.rfind('\n', at) + 1));
    if (sum >= wanted) return sum;
    const std::string more = pipe.read(1);
    if (more.empty()) return sum;
    text += more;
  }
}

TEST(QueuedWriter, LinesLeaveInTheirOrderAndWhole) {
  Pipe pipe;
  QueuedWriter writer(pipe.in());
  std::string all;
  for (int i = 0; i < 100; ++i) {
    const std::string line = std::to_string(i) + std::string(20, 'x') + "\n";
    writer.add(line);
    all += line;
  }
  EXPECT_TRUE(writer.finish(seconds(20)));
  EXPECT_EQ(pipe.read(all.size()), all);
  EXPECT_EQ(writer.dropped(), 0u);
}

TEST(QueuedWriter, AStalledPipeDropsWhatFindsNoRoomAndSaysSoLater) {
  Pipe pipe;
  QueuedWriter writer(pipe.in(), {.queue_bytes = 10000, .lost_words = "lines are missing"});
  const std::string line = std::string(99, 'x') + "\n";
  constexpr int kLines = 5000;  // 500 KB: more than pipe and queue hold together
  for (int i = 0; i < kLines; ++i) writer.add(line);
  const uint64_t dropped = writer.dropped();
  EXPECT_GT(dropped, 0u);
  EXPECT_LT(dropped, uint64_t{kLines});
  EXPECT_EQ(lines_missing(pipe, dropped), dropped);
  writer.add("after\n");
  EXPECT_NE(pipe.read_until("after\n").find("after\n"), std::string::npos);
}

TEST(QueuedWriter, TheEndDoesNotWaitForAReaderThatNeverComes) {
  Pipe pipe;
  QueuedWriter writer(pipe.in());
  for (int i = 0; i < 50; ++i) writer.add(std::string(10000, 'x'));
  EXPECT_FALSE(writer.finish(std::chrono::milliseconds(50)));
  // A pipe holds 64 KiB: what was taken, the text that is halfway and what waits make up all.
  EXPECT_GE(writer.dropped(), 50u - 65536 / 10000);
  const uint64_t dropped = writer.dropped();
  writer.add("nobody takes it");
  EXPECT_EQ(writer.dropped(), dropped + 1);
}

TEST(QueuedWriter, AClosedOrFullDescriptorCountsWhatItRefuses) {
  std::signal(SIGPIPE, SIG_IGN);
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  QueuedWriter to_full(full), to_nothing(-1);
  for (int i = 0; i < 3; ++i) {
    to_full.add("line\n");
    to_nothing.add("line\n");
  }
  EXPECT_TRUE(to_full.finish(seconds(20)));
  EXPECT_TRUE(to_nothing.finish(seconds(20)));
  EXPECT_EQ(to_full.dropped(), 3u);
  EXPECT_EQ(to_full.error(), ENOSPC);
  EXPECT_EQ(to_nothing.dropped(), 3u);
  EXPECT_EQ(to_nothing.error(), EBADF);
  ::close(full);
}

TEST(QueuedWriter, ManyThreadsAddAtOnce) {
  Pipe pipe;
  QueuedWriter writer(pipe.in());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 100; ++j) writer.add("0123456789\n");
    });
  for (std::thread& each : threads) each.join();
  EXPECT_TRUE(writer.finish(seconds(20)));
  const std::string text = pipe.read(4 * 100 * 11);
  for (size_t at = 0; at < text.size(); at += 11) EXPECT_EQ(text.substr(at, 11), "0123456789\n");
}

TEST(QueuedFile, EndsWhereTheDiskIsFull) {
  QueuedFile file("/dev/full", 1 << 20);
  for (int i = 0; i < 10; ++i) file.add("line\n");
  file.close();
  EXPECT_EQ(file.error(), ENOSPC);
  EXPECT_EQ(file.dropped(), 10u);
}

TEST(QueuedFile, SettlesWithWhetherTheFirstTextWasWritten) {
  QueuedFile full("/dev/full", 1 << 20), none("/dev/null", 1 << 20);
  full.add("line\n");
  none.add("line\n");
  EXPECT_FALSE(full.settle());
  EXPECT_EQ(full.error(), ENOSPC);
  EXPECT_TRUE(none.settle());
}

TEST(QueuedFile, APlaceThatIsNotThereIsAnErrorThatNamesIt) {
  try {
    QueuedFile file("/no/such/folder/file", 1 << 20);
    FAIL() << "it was opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/folder/file"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace nodewright
