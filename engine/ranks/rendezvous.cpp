#include "engine/ranks/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <optional>
#include <thread>

#include "runtime/error.h"

namespace nodewright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kChannels = 3;
// A process that means it says its hello and proves its secret at once.
constexpr std::chrono::seconds kHelloTime{5};
// Connections without a hello: more are those of nobody who belongs here.
constexpr size_t kMostStrangers = 64;
// Lines about them: a scanner of ports would fill a log.
constexpr size_t kMostLines = 16;
constexpr std::chrono::milliseconds kRetryEvery{100}, kPulseWhileWaiting{1000};

std::string seconds_text(std::chrono::duration<double> time) { return fmt::format("{:g} s", time.count()); }

bool answer(const RankSocket& socket, FrameWriter& frame) {
  const RankAnswer head;
  return socket.send(std::as_bytes(std::span(&head, 1))) && socket.send(frame.finish());
}

FrameWriter refusal(const std::string& reason) {
  FrameWriter frame(FrameKind::refused);
  frame.add_text(reason);
  return frame;
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
    return {std::move(met_[0]), std::move(met_[1]), std::move(met_[2])};
  }

 private:
  // A connection that has not proved yet that it belongs here: it says its hello, then its proof.
  struct Stranger {
    RankSocket socket;
    Clock::time_point limit;
    RankHello hello = {};
    Digest proof = {};
    size_t came = 0;  // bytes of both
    RankNonce nonce = {};
    bool is_challenged() const { return came >= sizeof(RankHello); }
  };

  std::vector<size_t> missing() const {
    std::vector<size_t> ranks;
    for (size_t rank = 1; rank < meeting_.ranks; ++rank)
      if (std::ranges::any_of(met_, [&](const auto& of) { return of[rank - 1].descriptor() < 0; }))
        ranks.push_back(rank);
    return ranks;
  }

  [[noreturn]] void fail(const std::string& detail, const std::string& advice) const {
    throw Error({.doing = "meet the other ranks at", .object = where_, .detail = detail, .advice = advice});
  }

  [[noreturn]] void give_up() const {
    fail(fmt::format("of {} ranks {} {} not come within {}{}", meeting_.ranks, fmt::join(missing(), ", "),
                     missing().size() == 1 ? "has" : "have", seconds_text(meeting_.patience), strangers_text()),
         "one process for each rank, with the same --rendezvous, and a port that their machines reach");
  }

  void look() {
    std::vector<pollfd> polled{{.fd = listener_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Stranger& one : strangers_)
      polled.push_back({.fd = one.socket.descriptor(), .events = POLLIN, .revents = 0});
    poll(polled.data(), polled.size(), static_cast<int>(kRetryEvery.count()));
    std::vector<Stranger> left;
    for (size_t i = 0; i < strangers_.size(); ++i) {
      Stranger& one = strangers_[i];
      const bool is_late = Clock::now() >= one.limit;
      if (polled[i + 1].revents != 0 ? hear(one) : !is_late)
        left.push_back(std::move(one));
      else if (polled[i + 1].revents == 0)
        drop(one.socket, fmt::format("it said nothing for {}", seconds_text(kHelloTime)));
    }
    strangers_ = std::move(left);
    pulse();
    if (polled[0].revents != 0) accept_one();
  }

  // Those that have come know that rank 0 lives, however long it waits for the rest.
  void pulse() {
    if (Clock::now() < next_pulse_) return;
    next_pulse_ = Clock::now() + kPulseWhileWaiting;
    constexpr std::byte kPulseByte{1};
    for (const RankSocket& one : met_[2])
      if (one.descriptor() >= 0) [[maybe_unused]]
        const ssize_t sent = ::send(one.descriptor(), &kPulseByte, sizeof(kPulseByte), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // Where there are too many, the oldest that has said no hello makes room.
  void accept_one() {
    const int descriptor = accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) return;
    if (strangers_.size() == kMostStrangers) {
      const auto silent = std::ranges::find_if(strangers_, [](const Stranger& one) { return !one.is_challenged(); });
      const auto dropped = silent == strangers_.end() ? strangers_.begin() : silent;
      drop(dropped->socket, fmt::format("{} others came after it", kMostStrangers));
      strangers_.erase(dropped);
    }
    strangers_.push_back({RankSocket(descriptor), Clock::now() + kHelloTime});
  }

  // False when it is no stranger any more: it belongs to the group, or is dropped.
  bool hear(Stranger& one) {
    const bool says_hello = !one.is_challenged();
    auto* const into = says_hello ? reinterpret_cast<std::byte*>(&one.hello) : one.proof.data();
    const size_t at = says_hello ? one.came : one.came - sizeof(RankHello);
    const size_t whole = says_hello ? sizeof(RankHello) : sizeof(Digest);
    const ssize_t came = recv(one.socket.descriptor(), into + at, whole - at, MSG_DONTWAIT);
    if (came < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (came <= 0) {
      drop(one.socket, says_hello ? "it left without a hello" : "it left without a proof: its secret may be another");
      return false;
    }
    one.came += static_cast<size_t>(came);
    if (at + static_cast<size_t>(came) < whole) return says_hello ? may_be_hello(one) : true;
    return says_hello ? challenge(one) : take(one);
  }

  // A client that speaks another protocol is not waited for.
  bool may_be_hello(const Stranger& one) {
    const RankHello own;
    if (std::memcmp(one.hello.magic, own.magic, std::min(one.came, sizeof(own.magic))) == 0) {
      if (one.came < offsetof(RankHello, version) + sizeof(own.version) || one.hello.version == own.version)
        return true;
      return refuse(one.socket, version_text(one.hello));
    }
    drop(one.socket, "it does not speak the ranks' protocol");
    return false;
  }

  static std::string version_text(const RankHello& hello) {
    return fmt::format("it speaks version {} of the ranks' protocol, and rank 0 version {}", hello.version,
                       RankHello{}.version);
  }

  // The hello is there.
  bool challenge(Stranger& one) {
    const RankHello& hello = one.hello;
    if (!may_be_hello(one)) return false;
    if (hello.ranks != meeting_.ranks)
      return refuse(one.socket,
                    fmt::format("it is one of {} ranks, and rank 0 one of {}", hello.ranks, meeting_.ranks));
    if (hello.rank == 0 || hello.rank >= meeting_.ranks || hello.channel >= kChannels)
      return refuse(one.socket, fmt::format("there is no rank {} with a channel {}", hello.rank, hello.channel));
    one.nonce = new_rank_nonce();
    FrameWriter frame(FrameKind::proof);
    frame.add(one.nonce).add(proof_of_host(meeting_.secret, terms_of(one)));
    return answer(one.socket, frame);
  }

  static RankProofTerms terms_of(const Stranger& one) {
    return {one.hello.rank, one.hello.ranks, one.hello.channel, one.hello.nonce, one.nonce};
  }

  // The proof is there.
  bool take(Stranger& one) {
    const auto refuse_frame = [&](const std::string& reason) {
      one.socket.send(refusal(reason).finish());
      drop(one.socket, reason);
      return false;
    };
    if (!same_proof(one.proof, proof_of_rank(meeting_.secret, terms_of(one))))
      return refuse_frame("its secret is another than that of rank 0");
    RankSocket& place = met_[one.hello.channel][one.hello.rank - 1];
    if (place.descriptor() >= 0 && !place.is_gone())
      return refuse_frame(fmt::format("another process, at {}, is rank {}", place.peer(), one.hello.rank));
    if (FrameWriter welcome(FrameKind::welcome); one.socket.send(welcome.finish())) place = std::move(one.socket);
    return false;
  }

  bool refuse(const RankSocket& socket, const std::string& reason) {
    FrameWriter frame = refusal(reason);
    answer(socket, frame);
    drop(socket, reason);
    return false;
  }

  void drop(const RankSocket& socket, const std::string& reason) {
    last_dropped_ = fmt::format("{}: {}", socket.peer(), reason);
    if (++dropped_ > kMostLines || !meeting_.dropped) return;
    meeting_.dropped(dropped_ < kMostLines ? last_dropped_ : last_dropped_ + "; more are not told");
  }

  std::string strangers_text() const {
    if (dropped_ == 0) return "";
    return fmt::format("; {} connection{} dropped, the last of {}", dropped_, dropped_ == 1 ? " was" : "s were",
                       last_dropped_);
  }

  const RankMeeting& meeting_;
  std::string where_;
  Clock::time_point limit_;
  RankSocket listener_;
  std::vector<Stranger> strangers_;
  std::array<std::vector<RankSocket>, kChannels> met_;
  Clock::time_point next_pulse_ = {};
  size_t dropped_ = 0;  // strangers
  std::string last_dropped_;
};

// One attempt of another rank to be welcomed: the socket, or why not. Throws Error where rank 0 refuses it, or does not
// know the secret.
struct Welcome {
  RankSocket socket;
  std::string reason;
};

[[noreturn]] void refused(const RankMeeting& meeting, const std::string& reason) {
  throw Error({.doing = fmt::format("join as rank {} of {}", meeting.rank, meeting.ranks),
               .object = rank_address_text(meeting.host, meeting.port),
               .detail = reason,
               .advice = "the same program, --tp and --rendezvous-secret on all ranks, and another --rank on each"});
}

// The next frame of rank 0, which must be of this kind. False where none comes.
bool receive_from_host(const RankMeeting& meeting, const RankSocket& socket, FrameKind kind, Frame& frame,
                       Clock::time_point limit) {
  if (!socket.receive(frame, limit)) return false;
  if (frame.kind == FrameKind::refused) refused(meeting, "rank 0 refuses it: " + FrameReader(frame).take_text());
  return frame.kind == kind;
}

Welcome come_once(const RankMeeting& meeting, uint32_t channel, Clock::time_point limit) {
  const ConnectAttempt attempt = connect_to_rank(meeting.host, meeting.port, limit);
  if (attempt.descriptor < 0) return {{}, attempt.reason};
  RankSocket socket(attempt.descriptor);
  const RankHello hello{.rank = static_cast<uint32_t>(meeting.rank),
                        .ranks = static_cast<uint32_t>(meeting.ranks),
                        .channel = channel,
                        .nonce = new_rank_nonce()};
  const char* const silent = "what listens there does not answer as rank 0";
  RankAnswer head{};
  std::memset(head.magic, 0, sizeof(head.magic));
  Frame frame;
  if (!socket.send(std::as_bytes(std::span(&hello, 1))) ||
      !socket.receive(std::as_writable_bytes(std::span(&head, 1)), limit) ||
      std::memcmp(head.magic, RankAnswer{}.magic, sizeof(head.magic)) != 0 ||
      !receive_from_host(meeting, socket, FrameKind::proof, frame, limit))
    return {{}, silent};
  FrameReader reader(frame);
  RankProofTerms terms{hello.rank, hello.ranks, hello.channel, hello.nonce, reader.take<RankNonce>()};
  if (!same_proof(reader.take<Digest>(), proof_of_host(meeting.secret, terms)))
    refused(meeting, "the secret of rank 0 is another than that of this rank");
  if (!socket.send(proof_of_rank(meeting.secret, terms)) ||
      !receive_from_host(meeting, socket, FrameKind::welcome, frame, limit))
    return {{}, silent};
  return {std::move(socket), ""};
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
  met.pulses.push_back(come(meeting, 2, limit));
  return met;
}

}  // namespace nodewright
