#include "engine/ranks/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <thread>

#include "runtime/error.h"

namespace nodewright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kChannels = 2;
// A process that means it says its hello at once.
constexpr std::chrono::seconds kHelloTime{5};
// Connections without a hello: more are those of nobody who belongs here.
constexpr size_t kMostStrangers = 64;
constexpr std::chrono::milliseconds kRetryEvery{100};

std::string seconds_text(std::chrono::duration<double> time) { return fmt::format("{:g} s", time.count()); }

bool has_magic(const RankHello& hello) { return std::memcmp(hello.magic, RankHello{}.magic, sizeof(hello.magic)) == 0; }

bool answer(const RankSocket& socket, FrameKind kind, std::string_view text) {
  const RankAnswer head;
  FrameWriter frame(kind);
  if (kind == FrameKind::refused) frame.add_text(text);
  return socket.send(std::as_bytes(std::span(&head, 1))) && socket.send(frame.finish());
}

// The side of rank 0.
class Host {
 public:
  explicit Host(const RankMeeting& meeting)
      : meeting_(meeting),
        where_(rank_address_text(meeting.host, meeting.port)),
        limit_(Clock::now() + meeting.patience),
        listener_(RankSocket(listen_for_ranks(meeting.host, meeting.port))) {
    for (auto& sockets : met_) sockets.resize(meeting.ranks - 1);
    if (meeting_.listens) meeting_.listens(listening_port(listener_.descriptor()));
  }

  MetRanks wait() {
    while (!missing().empty()) {
      if (Clock::now() >= limit_) give_up();
      look();
    }
    return {std::move(met_[0]), std::move(met_[1])};
  }

 private:
  // A connection whose hello is not there yet.
  struct Stranger {
    RankSocket socket;
    Clock::time_point limit;
    RankHello hello;
    size_t came = 0;  // bytes of it
  };

  std::vector<size_t> missing() const {
    std::vector<size_t> ranks;
    for (size_t rank = 1; rank < meeting_.ranks; ++rank)
      if (met_[0][rank - 1].descriptor() < 0 || met_[1][rank - 1].descriptor() < 0) ranks.push_back(rank);
    return ranks;
  }

  [[noreturn]] void fail(const std::string& detail, const std::string& advice) const {
    throw Error({.doing = "meet the other ranks at", .object = where_, .detail = detail, .advice = advice});
  }

  [[noreturn]] void give_up() const {
    fail(fmt::format("of {} ranks {} {} not come within {}{}", meeting_.ranks, fmt::join(missing(), ", "),
                     missing().size() == 1 ? "has" : "have", seconds_text(meeting_.patience),
                     note_.empty() ? "" : ", " + note_),
         "one process for each rank, with the same --rendezvous, and a port that their machines reach");
  }

  void look() {
    std::vector<pollfd> polled{{.fd = listener_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Stranger& one : strangers_)
      polled.push_back({.fd = one.socket.descriptor(), .events = POLLIN, .revents = 0});
    poll(polled.data(), polled.size(), static_cast<int>(kRetryEvery.count()));
    std::vector<Stranger> left;
    for (size_t i = 0; i < strangers_.size(); ++i) {
      const bool stays = polled[i + 1].revents == 0 ? Clock::now() < strangers_[i].limit : hear(strangers_[i]);
      if (stays) left.push_back(std::move(strangers_[i]));
    }
    strangers_ = std::move(left);
    if (polled[0].revents != 0) accept_one();
  }

  void accept_one() {
    const int descriptor = accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) return;
    if (strangers_.size() == kMostStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back({RankSocket(descriptor), Clock::now() + kHelloTime, {}, 0});
  }

  // False when it is no stranger any more: it belongs to the group, or is dropped.
  bool hear(Stranger& one) {
    auto* const into = reinterpret_cast<std::byte*>(&one.hello) + one.came;
    const ssize_t came = recv(one.socket.descriptor(), into, sizeof(RankHello) - one.came, MSG_DONTWAIT);
    if (came < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (came <= 0) return false;
    one.came += static_cast<size_t>(came);
    if (one.came < sizeof(RankHello)) return true;
    if (has_magic(one.hello)) take(one.hello, std::move(one.socket));
    return false;
  }

  void take(const RankHello& hello, RankSocket socket) {
    if (const RankHello own; hello.version != own.version)
      refuse(hello, socket,
             fmt::format("it speaks version {} of the ranks' protocol, and rank 0 version {}", hello.version,
                         own.version));
    if (hello.ranks != meeting_.ranks)
      refuse(hello, socket, fmt::format("it is one of {} ranks, and rank 0 one of {}", hello.ranks, meeting_.ranks));
    if (hello.rank == 0 || hello.rank >= meeting_.ranks || hello.channel >= kChannels) {
      answer(socket, FrameKind::refused, "there is no such rank");
      return;
    }
    RankSocket& place = met_[hello.channel][hello.rank - 1];
    if (place.descriptor() >= 0 && !place.is_gone()) {
      note_ = fmt::format("and a second process, at {}, has said that it is rank {}", socket.peer(), hello.rank);
      answer(socket, FrameKind::refused, fmt::format("another process, at {}, is rank {}", place.peer(), hello.rank));
      return;
    }
    if (answer(socket, FrameKind::welcome, "")) place = std::move(socket);
  }

  [[noreturn]] void refuse(const RankHello& hello, const RankSocket& socket, const std::string& reason) const {
    answer(socket, FrameKind::refused, reason);
    fail(fmt::format("rank {} at {}: {}", hello.rank, socket.peer(), reason),
         "the same program and the same --tp on all ranks");
  }

  const RankMeeting& meeting_;
  std::string where_;
  Clock::time_point limit_;
  RankSocket listener_;
  std::vector<Stranger> strangers_;
  std::array<std::vector<RankSocket>, kChannels> met_;
  std::string note_;  // what else happened
};

// One attempt of another rank to be welcomed: the socket, or why not. Throws Error where rank 0 refuses it.
struct Welcome {
  RankSocket socket;
  std::string reason;
};
Welcome come_once(const RankMeeting& meeting, uint32_t channel, Clock::time_point limit) {
  const ConnectAttempt attempt = connect_to_rank(meeting.host, meeting.port, limit);
  if (attempt.descriptor < 0) return {{}, attempt.reason};
  RankSocket socket(attempt.descriptor);
  const RankHello hello{
      .rank = static_cast<uint32_t>(meeting.rank), .ranks = static_cast<uint32_t>(meeting.ranks), .channel = channel};
  RankAnswer head{};
  std::memset(head.magic, 0, sizeof(head.magic));
  Frame frame;
  const bool answered = socket.send(std::as_bytes(std::span(&hello, 1))) &&
                        socket.receive(std::as_writable_bytes(std::span(&head, 1)), limit) &&
                        std::memcmp(head.magic, RankAnswer{}.magic, sizeof(head.magic)) == 0 &&
                        socket.receive(frame, limit);
  if (!answered) return {{}, "what listens there does not answer as rank 0"};
  if (frame.kind == FrameKind::welcome) return {std::move(socket), ""};
  throw Error({.doing = fmt::format("join as rank {} of {}", meeting.rank, meeting.ranks),
               .object = rank_address_text(meeting.host, meeting.port),
               .detail = "rank 0 refuses it: " + FrameReader(frame).take_text(),
               .advice = "the same program and the same --tp on all ranks, and another --rank on each"});
}

RankSocket come(const RankMeeting& meeting, uint32_t channel, Clock::time_point limit) {
  while (true) {
    Welcome welcome = come_once(meeting, channel, limit);
    if (welcome.socket.descriptor() >= 0) return std::move(welcome.socket);
    if (Clock::now() + kRetryEvery >= limit)
      throw Error(
          {.doing = fmt::format("join as rank {} of {}", meeting.rank, meeting.ranks),
           .object = rank_address_text(meeting.host, meeting.port),
           .detail = fmt::format("rank 0 was not there within {}: {}", seconds_text(meeting.patience), welcome.reason),
           .advice = "start rank 0 with this --rendezvous, at a port that this machine reaches"});
    std::this_thread::sleep_for(kRetryEvery);
  }
}

}  // namespace

MetRanks meet(const RankMeeting& meeting) {
  if (meeting.rank == 0) return Host(meeting).wait();
  const Clock::time_point limit = Clock::now() + meeting.patience;
  MetRanks met;
  met.steps.push_back(come(meeting, 0, limit));
  met.values.push_back(come(meeting, 1, limit));
  return met;
}

}  // namespace nodewright
