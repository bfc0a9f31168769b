#include "engine/ranks/rank_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "runtime/error.h"

namespace nodewright {
namespace {

using Clock = std::chrono::steady_clock;

// For the others to free their devices, when rank 0 ends in order.
constexpr std::chrono::seconds kEndTime{10};
// The watcher looks again after this while another thread reads.
constexpr std::chrono::milliseconds kLookAgain{5};
// The most time for the last message to be received.
constexpr std::chrono::milliseconds kLastWordsTime{500};
// Period of the heartbeat; 30 periods of silence make a rank count as hung.
constexpr std::chrono::milliseconds kPulseEvery{1000};
constexpr size_t kMostReason = 4096;  // bytes
// What a frame of the start may have.
constexpr uint32_t kMostTerms = 1000;

constexpr const char* kHasLeft = "it has left";

[[noreturn]] void lost_error(const std::string& reason) {
  throw Error({.doing = "go on with the other ranks",
               .detail = reason,
               .advice = "what that process said last; then start all ranks again"});
}

}  // namespace

RankLink::RankLink(const RankMeeting& meeting)
    : rank_(meeting.rank), ranks_(meeting.ranks), patience_(meeting.patience), most_silent_(meeting.most_silent) {
  MetRanks met = meet(meeting);
  steps_ = std::move(met.steps);
  values_ = std::move(met.values);
  pulses_ = std::move(met.pulses);
  heard_.assign(pulses_.size(), Clock::now());
  for (size_t i = 0; i < steps_.size(); ++i)
    names_.push_back(fmt::format("rank {} at {}", rank_at(i), steps_[i].peer()));
  stop_ = eventfd(0, EFD_CLOEXEC);
  watcher_ = std::thread([this] { watch(); });
  pthread_setname_np(watcher_.native_handle(), "rank-watch");
}

RankLink::~RankLink() {
  stop_watching();
  const Clock::time_point limit = Clock::now() + kEndTime;
  if (in_order_)
    for (const RankSocket& socket : steps_)
      while (!socket.is_gone() && Clock::now() < limit) std::this_thread::sleep_for(kLookAgain);
  ::close(stop_);
}

void RankLink::stop_watching() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_, &one, sizeof(one));
  if (watcher_.joinable()) watcher_.join();
}

void RankLink::watch() {
  std::vector<pollfd> polled{{.fd = stop_, .events = POLLIN, .revents = 0}};
  for (const RankSocket& socket : steps_)
    polled.push_back({.fd = socket.descriptor(), .events = POLLRDHUP, .revents = 0});
  const auto pulse_every = std::min(kPulseEvery, most_silent_ / 8);
  Clock::time_point next_pulse = Clock::now();
  while (true) {
    const auto until = std::chrono::ceil<std::chrono::milliseconds>(next_pulse - Clock::now());
    poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(until.count(), 0)));
    if (polled[0].revents != 0) return;
    if (Clock::now() >= next_pulse) {
      hear_pulses();
      if (find_hung()) return;
      next_pulse = Clock::now() + pulse_every;
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (polled[i + 1].revents == 0) continue;
      if (hear_last_words(i)) return;
      std::this_thread::sleep_for(kLookAgain);
    }
  }
}

// Reads the other ranks' heartbeats and sends one to each. Ranks that have left are handled elsewhere.
void RankLink::hear_pulses() {
  constexpr std::byte kPulse{1};
  std::array<std::byte, 256> came{};
  for (size_t i = 0; i < pulses_.size(); ++i) {
    const int socket = pulses_[i].descriptor();
    [[maybe_unused]] const ssize_t sent = ::send(socket, &kPulse, sizeof(kPulse), MSG_NOSIGNAL | MSG_DONTWAIT);
    while (recv(socket, came.data(), came.size(), MSG_DONTWAIT) > 0) heard_[i] = Clock::now();
  }
}

// What waits for a hung rank in this process goes on, and finds it lost.
bool RankLink::find_hung() {
  for (size_t i = 0; i < pulses_.size(); ++i) {
    if (Clock::now() - heard_[i] < most_silent_) continue;
    lose(rank_at(i), fmt::format("it is connected and has given no sign of life for {:g} s: the process or its machine "
                                 "hangs",
                                 std::chrono::duration<double>(most_silent_).count()));
    steps_[i].shut_down();
    return true;
  }
  return false;
}

// Whether the loss is known now, with the reason that the rank gave, if it did. Rank 0's steps that are still to be
// read are for the thread that follows them.
bool RankLink::hear_last_words(size_t index) {
  std::string why = kHasLeft;
  if (rank_ == 0) {
    const std::unique_lock lock(reading_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    try {
      Frame frame;
      while (steps_[index].receive(frame, Clock::now()))
        if (frame.kind == FrameKind::failed) why = FrameReader(frame).take_text();
    } catch (const Error&) {  // its last words make no sense
    }
  }
  lose(rank_at(index), why);
  return true;
}

void RankLink::lose(size_t rank, const std::string& why) {
  std::string reason;
  std::vector<std::function<void(const std::string&)>> told;
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || !lost_.empty()) return;
    reason = lost_ = fmt::format("{}: {}", names_[index_of(rank)], why);
    told = told_;
  }
  for (const auto& one : told) one(reason);
}

std::string RankLink::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void RankLink::check() const {
  if (const std::string reason = lost(); !reason.empty()) lost_error(reason);
}

void RankLink::when_lost(const std::function<void(const std::string& reason)>& told) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    told_.push_back(told);
    reason = lost_;
  }
  if (!reason.empty()) told(reason);
}

// The next frame of that rank. Throws Error where none comes, or it says why it leaves.
void RankLink::take_frame(size_t index, std::optional<Time> limit) {
  const bool came = steps_[index].receive(frame_, limit);
  if (came && frame_.kind != FrameKind::failed) return;
  const bool is_late = !came && limit && Clock::now() >= *limit;
  const char* const silent = is_late ? "it is connected and has not said its terms in time" : kHasLeft;
  const std::string why = came ? FrameReader(frame_).take_text() : silent, before = lost();
  lose(rank_at(index), why);
  lost_error(came || before.empty() ? fmt::format("{}: {}", names_[index], why) : before);
}

// The same, which must be of this kind.
const Frame& RankLink::expect(size_t index, FrameKind kind, std::optional<Time> limit) {
  const std::lock_guard lock(reading_);
  take_frame(index, limit);
  if (frame_.kind == FrameKind::refused) refuse_terms(FrameReader(frame_).take_text());
  if (frame_.kind != kind)
    throw Error({.doing = "read what another rank sent",
                 .object = name_of(frame_.kind),
                 .detail = fmt::format("{} should say {}", names_[index], name_of(kind)),
                 .advice = "the same program on all ranks"});
  return frame_;
}

void RankLink::refuse_terms(const std::string& reason) {
  throw Error({.doing = "run as one group",
               .detail = reason,
               .advice = "the same model, program and options on all ranks, but --rank, --device and those of HTTP",
               .fault = Fault::usage});
}

void RankLink::check_terms(size_t index, std::span<const RankTerm> terms, Time limit) {
  FrameReader reader(expect(index, FrameKind::terms, limit));
  const auto count = std::min(reader.take<uint32_t>(), kMostTerms);
  const auto refuse = [&](const std::string& reason) {
    FrameWriter refused(FrameKind::refused);
    refused.add_text(reason);
    for (const RankSocket& socket : steps_) socket.send(refused.finish());
    refuse_terms(reason);
  };
  if (count != terms.size()) refuse(fmt::format("{} has {} terms, and rank 0 {}", names_[index], count, terms.size()));
  for (const RankTerm& own : terms) {
    const std::string name = reader.take_text(), value = reader.take_text();
    if (name != own.name) refuse(fmt::format("{} has the term {}, and rank 0 {}", names_[index], name, own.name));
    if (value != own.value)
      refuse(fmt::format("{}: {} has {}, and rank 0 has {}", own.name, names_[index], value, own.value));
  }
  reader.end();
}

void RankLink::agree(std::span<const RankTerm> terms, std::optional<std::chrono::milliseconds> patience) {
  if (rank_ == 0) {
    for (size_t i = 0; i < steps_.size(); ++i) check_terms(i, terms, Clock::now() + patience.value_or(patience_));
    FrameWriter agreed(FrameKind::agreed);
    return tell(agreed);
  }
  FrameWriter frame(FrameKind::terms);
  frame.add(static_cast<uint32_t>(terms.size()));
  for (const RankTerm& one : terms) frame.add_text(one.name).add_text(one.value);
  steps_[0].send(frame.finish());
  expect(0, FrameKind::agreed);  // which waits for the last rank, and gives up or hangs itself
}

int64_t RankLink::least(int64_t own) {
  if (rank_ == 0)
    for (size_t i = 0; i < steps_.size(); ++i)
      own = std::min(own, FrameReader(expect(i, FrameKind::number)).take<int64_t>());
  FrameWriter frame(FrameKind::number);
  frame.add(own);
  if (rank_ == 0) {
    tell(frame);
    return own;
  }
  steps_[0].send(frame.finish());
  return FrameReader(expect(0, FrameKind::number)).take<int64_t>();
}

std::vector<std::byte> RankLink::from_first(std::span<const std::byte> own) {
  if (rank_ != 0) return FrameReader(expect(0, FrameKind::bytes)).take_all<std::byte>();
  FrameWriter frame(FrameKind::bytes);
  frame.add_all(own);
  tell(frame);
  return {own.begin(), own.end()};
}

void RankLink::tell(FrameWriter& frame) {
  const std::span<const std::byte> bytes = frame.finish();
  for (size_t i = 0; i < steps_.size(); ++i)
    if (!steps_[i].send(bytes)) lose(rank_at(i), kHasLeft);
}

const Frame& RankLink::next() {
  const std::lock_guard lock(reading_);
  take_frame(0);
  return frame_;
}

// After its last word it waits a little: what is unread when a process ends takes the words along (TCP's reset).
void RankLink::leave(const std::string& reason) noexcept {
  try {
    FrameWriter frame(FrameKind::failed);
    frame.add_text(std::string_view(reason).substr(0, kMostReason));
    const std::span<const std::byte> bytes = frame.finish();
    const Clock::time_point limit = Clock::now() + kLastWordsTime;
    for (const RankSocket& socket : steps_) {
      [[maybe_unused]] const ssize_t sent =
          ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      shutdown(socket.descriptor(), SHUT_WR);
    }
    std::byte unread{};
    for (const RankSocket& socket : steps_)
      while (socket.receive(std::span(&unread, 1), limit)) continue;
  } catch (...) {  // then the others know that it has left, and not why
  }
}

void RankLink::end() {
  stop_watching();
  if (rank_ != 0 || in_order_) return;
  in_order_ = true;
  FrameWriter frame(FrameKind::end);
  for (const RankSocket& socket : steps_) socket.send(frame.finish());
}

}  // namespace nodewright
