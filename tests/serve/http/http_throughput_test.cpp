// A thousand streams on one I/O thread, as the steps of an engine feed them: every event arrives, and what each costs.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/serve/http/serving_fixture.h"
#include "tests/support/processor_time.h"

namespace nodewright {
namespace {

constexpr int kStreams = 1000;
const std::string kEvent = "data: " + std::string(230, 'x') + "\n\n";  // the size of a chunk of a chat's answer

double cpu_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double now_seconds() { return cpu_seconds(CLOCK_MONOTONIC); }

// Reads what comes on many sockets and counts its bytes, as cheaply as can be.
class Drain {
 public:
  explicit Drain(const std::vector<RawClient>& clients) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (const RawClient& client : clients) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = client.descriptor()}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, client.descriptor(), &event);
    }
  }
  ~Drain() { close(epoll_); }
  // Waits until `bytes` bytes have come in all; false if they do not come.
  bool until(size_t bytes) {
    epoll_event events[256];
    char read[65536];
    while (total_ < bytes) {
      const int count = epoll_wait(epoll_, events, 256, static_cast<int>(1000 * kPatience.count()));
      if (count <= 0) return false;
      for (int i = 0; i < count; ++i) {
        const ssize_t got = recv(events[i].data.fd, read, sizeof(read), 0);
        if (got <= 0) return false;
        total_ += static_cast<size_t>(got);
      }
    }
    return true;
  }

 private:
  int epoll_;
  size_t total_ = 0;
};

class HttpThroughput : public testing::Test {
 protected:
  HttpThroughput()
      : server_(any_port(), [this](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
          const std::lock_guard lock(mutex_);
          pthread_getcpuclockid(pthread_self(), &io_clock_);
          replies_.push_back(std::move(reply));
        }) {
    server_.start();
    for (int i = 0; i < kStreams; ++i) {
      clients_.emplace_back(server_.port());
      clients_.back().say(get("/"));
    }
  }
  void begin() {
    ASSERT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      return replies_.size() == kStreams;
    }));
    for (const auto& reply : replies_) reply->begin_events();
    for (RawClient& client : clients_) client.hear_until("\r\n\r\n");
    start_ = now_seconds();
    io_start_ = cpu_seconds(io_clock_);
  }
  // An event to each stream; the CPU seconds of the calls.
  double write_to_all() {
    const double before = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (const auto& reply : replies_) reply->write(kEvent);
    return cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - before;
  }
  void report(int steps, double writing) {
    const double seconds = now_seconds() - start_, io_seconds = cpu_seconds(io_clock_) - io_start_;
    const double events = 1.0 * steps * kStreams;
    std::cout << static_cast<int>(events / seconds) << " events/s; CPU us an event: I/O thread "
              << io_seconds / events * 1e6 << ", write() " << writing / events * 1e6 << std::endl;
    EXPECT_LT(io_seconds / events, test::allowed_seconds(200e-6)) << "a hundred times of what it took, and more";
    for (const auto& reply : replies_) reply->end();
    EXPECT_TRUE(eventually([&] { return server_.open_requests() == 0; }));
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpReply>> replies_;
  clockid_t io_clock_{};
  HttpServer server_;
  std::vector<RawClient> clients_;
  double start_ = 0, io_start_ = 0;
};

// The next step begins when everybody has the event: each is a chunk, and a system call, of its own.
TEST_F(HttpThroughput, AThousandStreamsGetAnEventEachStep) {
  begin();
  Drain drain(clients_);
  const size_t chunk_bytes = kEvent.size() + std::string_view("ee\r\n\r\n").size();
  double writing = 0;
  for (int step = 1; step <= 100; ++step) {
    writing += write_to_all();
    ASSERT_TRUE(drain.until(static_cast<size_t>(step) * kStreams * chunk_bytes));
  }
  report(100, writing);
}

// A thread writes as fast as it can: pieces that wait leave together.
TEST_F(HttpThroughput, PiecesThatWaitLeaveTogether) {
  begin();
  Drain drain(clients_);
  double writing = 0;
  std::thread engine([&] {
    for (int step = 0; step < 400; ++step) writing += write_to_all();
  });
  EXPECT_TRUE(drain.until(size_t{400} * kStreams * kEvent.size()));
  engine.join();
  report(400, writing);
}

}  // namespace
}  // namespace nodewright
