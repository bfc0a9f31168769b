// The ranks of a group as threads of a test, each with its end of the link.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/ranks/rank_link.h"
#include "runtime/error.h"
#include "tests/support/error_text.h"

namespace nodewright::test {

// Until a test that hangs ends; nothing that passes waits for it.
inline constexpr std::chrono::milliseconds kTestPatience{300'000};

// Rank 0 of a meeting that has begun at a port that was free.
class BegunMeeting {
 public:
  explicit BegunMeeting(size_t ranks, std::chrono::milliseconds patience = kTestPatience,
                        const std::string& secret = "", std::chrono::milliseconds most_silent = kTestPatience) {
    meeting_ = {.rank = 0,
                .ranks = ranks,
                .host = "127.0.0.1",
                .port = 0,
                .patience = patience,
                .secret = secret,
                .most_silent = most_silent};
    meeting_.dropped = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      dropped_.push_back(line);
    };
    std::promise<uint16_t> port;
    meeting_.listens = [&](uint16_t at) { port.set_value(at); };
    thread_ = std::thread([this] { error_ = error_of([&] { link_ = std::make_unique<RankLink>(meeting_); }); });
    port_ = port.get_future().get();
  }
  ~BegunMeeting() {
    if (thread_.joinable()) thread_.join();
  }

  // Another rank's part in it.
  RankMeeting of(size_t rank) const {
    return {.rank = rank,
            .ranks = meeting_.ranks,
            .host = "127.0.0.1",
            .port = port_,
            .patience = kTestPatience,
            .secret = meeting_.secret,
            .most_silent = kTestPatience};
  }
  // What rank 0 has said of strangers, once it has said so much.
  std::vector<std::string> dropped(size_t count) {
    const auto limit = std::chrono::steady_clock::now() + kTestPatience;
    while (std::chrono::steady_clock::now() < limit) {
      {
        const std::lock_guard lock(mutex_);
        if (dropped_.size() >= count) return dropped_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return {};
  }
  uint16_t port() const { return port_; }
  // Waits until rank 0 has met all, or has given up: then null, and error() says why.
  std::unique_ptr<RankLink> link() {
    thread_.join();
    return std::move(link_);
  }
  const std::string& error() const { return error_; }

 private:
  RankMeeting meeting_;
  uint16_t port_ = 0;
  std::unique_ptr<RankLink> link_;
  std::string error_;
  std::mutex mutex_;
  std::vector<std::string> dropped_;
  std::thread thread_;
};

// All of them, by rank.
inline std::vector<std::unique_ptr<RankLink>> linked_ranks(size_t ranks) {
  BegunMeeting meeting(ranks);
  std::vector<std::unique_ptr<RankLink>> links(ranks);
  for (size_t rank = 1; rank < ranks; ++rank) links[rank] = std::make_unique<RankLink>(meeting.of(rank));
  links[0] = meeting.link();
  return links;
}

// f(rank) on a thread of each rank, all at once: the Error of each, empty where there was none.
inline std::vector<std::string> on_all_ranks(size_t ranks, const std::function<void(size_t)>& f) {
  std::vector<std::string> errors(ranks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { errors[rank] = error_of([&] { f(rank); }); });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace nodewright::test
