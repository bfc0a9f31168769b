// The link of one process to the other ranks of its group: agreement at the start, steps from rank 0 to the others, and
// the news that a rank has left, which comes within a second however its process ended, or that it hangs.
//
//   RankLink link({.rank = 1, .ranks = 2, .host = "10.0.0.1", .port = 29500});   meets the others
//   link.agree(terms);                                                          and so do they
//   const int64_t pages = link.least(own);
//   link.when_lost([&](const std::string& reason) { collectives.give_up(); });
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/ranks/rank_frames.h"
#include "engine/ranks/rendezvous.h"

namespace nodewright {

// A value that must be equal on all ranks.
struct RankTerm {
  std::string name, value;
};

class RankLink {
 public:
  // Meets the others, as meet() does. The constructor and the functions that say so are for one thread, the rest for
  // any.
  explicit RankLink(const RankMeeting& meeting);
  // After end() rank 0 waits until the others are gone, 10 s at most. Without end() they count this rank as lost.
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  size_t rank() const { return rank_; }
  size_t ranks() const { return ranks_; }

  // For one thread, at the start; every rank makes the same calls in the same order. They throw Error where another
  // rank has left, with its reason.

  // Throws Error besides, on both sides, where a rank has other terms than rank 0: with the name and both values of the
  // first that differs; and of rank 0, where a rank is silent for `patience`, that of the meeting
  // where there is none.
  void agree(std::span<const RankTerm> terms, std::optional<std::chrono::milliseconds> patience = {});
  // Returns the least of all ranks' numbers.
  int64_t least(int64_t own);
  // Returns what rank 0 passes; the others pass nothing.
  std::vector<std::byte> from_first(std::span<const std::byte> own);

  // For one thread, after the start.

  // Rank 0: sends the frame to every other rank. A rank may be gone already: check() says so.
  void tell(FrameWriter& frame);
  // Another rank: the next frame of rank 0. Throws Error when rank 0 has left.
  const Frame& next();
  // Sends the others the reason why this process is about to leave, as far as that is possible.
  void leave(const std::string& reason) noexcept;
  // Ends in order: rank 0 says so to the others. From now on no rank counts as lost, and no function of when_lost() is
  // called.
  void end();

  // Why a rank is missing; empty: all are there.
  std::string lost() const;
  // Throws Error where one is.
  void check() const;
  // Called once with the reason, by whichever thread finds out; at once where one is missing already. What it uses must
  // be there until end() or the destructor.
  void when_lost(const std::function<void(const std::string& reason)>& told);
  // No function of when_lost() is called from now on.
  void stop_watching();
  // For other code that has found that `rank` is missing.
  void lose(size_t rank, const std::string& why);

  // The connection that carries values to and from `rank`: on rank 0 any other rank, else rank 0.
  const RankSocket& values(size_t rank) const { return values_.at(index_of(rank)); }

 private:
  size_t index_of(size_t rank) const { return rank_ == 0 ? rank - 1 : 0; }
  size_t rank_at(size_t index) const { return rank_ == 0 ? index + 1 : 0; }
  using Time = std::chrono::steady_clock::time_point;
  void take_frame(size_t index, std::optional<Time> limit = {});
  const Frame& expect(size_t index, FrameKind kind, std::optional<Time> limit = {});
  void check_terms(size_t index, std::span<const RankTerm> terms, Time limit);
  [[noreturn]] void refuse_terms(const std::string& reason);
  void watch();
  bool hear_last_words(size_t index);
  void hear_pulses();
  bool find_hung();

  size_t rank_, ranks_;
  std::chrono::milliseconds patience_, most_silent_;
  std::vector<RankSocket> steps_, values_, pulses_;
  std::vector<Time> heard_;         // the last pulse of each; of the watcher
  std::vector<std::string> names_;  // "rank 1 at 10.0.0.2:40312"
  Frame frame_;                     // the last that came
  std::mutex reading_;              // of steps_
  mutable std::mutex mutex_;
  std::string lost_;
  bool ended_ = false;     // no rank gets messages any more
  bool in_order_ = false;  // rank 0 has said its end
  std::vector<std::function<void(const std::string&)>> told_;
  int stop_ = -1;  // an eventfd
  std::thread watcher_;
};

}  // namespace nodewright
