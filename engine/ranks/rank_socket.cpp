#include "engine/ranks/rank_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "runtime/error.h"
#include "runtime/moved_into.h"

namespace nodewright {
namespace {

using Clock = std::chrono::steady_clock;

// A machine that lost its power says nothing: asked after 5 s of silence, it counts as gone after three more questions,
// or when it has confirmed nothing for 15 s.
constexpr int kIdleSeconds = 5, kAskedEverySeconds = 2, kMostAsked = 3, kUnconfirmedMs = 15000;

void set_option(int descriptor, int level, int name, int value) {
  setsockopt(descriptor, level, name, &value, sizeof(value));
}

int left_ms(RankSocket::Time limit) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, INT32_MAX));
}

// False when the time is up before.
bool await(int descriptor, short events, RankSocket::Time limit) {
  while (true) {
    pollfd one{.fd = descriptor, .events = events, .revents = 0};
    const int ready = poll(&one, 1, left_ms(limit));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

struct FoundAddresses {
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list{nullptr, freeaddrinfo};
  std::string problem;  // empty: there are some
};
FoundAddresses addresses_of(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  FoundAddresses addresses;
  if (failure != 0)
    addresses.problem = failure == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(failure);
  else
    addresses.list.reset(found);
  return addresses;
}

// Empty: connected. Else why not.
std::string connect_within(int descriptor, const addrinfo& address, RankSocket::Time limit) {
  if (connect(descriptor, address.ai_addr, address.ai_addrlen) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  if (!await(descriptor, POLLOUT, limit)) return "it does not answer";
  int problem = 0;
  socklen_t bytes = sizeof(problem);
  if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &problem, &bytes) != 0) problem = errno;
  return problem == 0 ? "" : std::strerror(problem);
}

}  // namespace

std::string rank_address_text(const std::string& host, uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

RankSocket::RankSocket(int descriptor) : descriptor_(descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, kAskedEverySeconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, kMostAsked);
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnconfirmedMs);
}

RankSocket& RankSocket::operator=(RankSocket&& other) noexcept { return moved_into(*this, std::move(other)); }

bool RankSocket::send(std::span<const std::byte> bytes) const noexcept {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool RankSocket::receive(std::span<std::byte> bytes, std::optional<Time> limit) const noexcept {
  while (!bytes.empty()) {
    if (limit && !await(descriptor_, POLLIN, *limit)) return false;
    const ssize_t came = recv(descriptor_, bytes.data(), bytes.size(), 0);
    if (came < 0 && errno == EINTR) continue;
    if (came <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(came));
  }
  return true;
}

bool RankSocket::receive(Frame& frame, std::optional<Time> limit) const {
  FrameHeader header{};
  if (!receive(std::as_writable_bytes(std::span(&header, 1)), limit)) return false;
  if (header.bytes > kMostFrameBytes)
    throw Error({.doing = "read what another rank sent",
                 .object = name_of(header.kind),
                 .detail = fmt::format("it says that it has {} bytes, and a message has at most {}", header.bytes,
                                       kMostFrameBytes),
                 .advice = "the same program on all ranks"});
  frame.kind = header.kind;
  frame.body.resize(header.bytes);
  return receive(std::span(frame.body), limit);
}

bool RankSocket::is_gone() const noexcept {
  pollfd one{.fd = descriptor_, .events = POLLRDHUP, .revents = 0};
  return poll(&one, 1, 0) > 0;
}

void RankSocket::shut_down() const noexcept {
  if (descriptor_ >= 0) shutdown(descriptor_, SHUT_RDWR);
}

void RankSocket::close() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

std::string RankSocket::peer() const {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getpeername(descriptor_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  return rank_address_text(host.data(), static_cast<uint16_t>(std::stoi(port.data())));
}

int listen_for_ranks(const std::string& host, uint16_t port) {
  const auto refuse = [&](const std::string& reason, const char* advice, Fault fault) {
    throw Error({.doing = "wait for the other ranks at",
                 .object = rank_address_text(host, port),
                 .detail = reason,
                 .advice = advice,
                 .fault = fault});
  };
  const FoundAddresses addresses = addresses_of(host, port, AI_PASSIVE);
  constexpr const char* kOfThisMachine = "a --rendezvous with a name or address of rank 0's machine";
  if (!addresses.list) refuse(addresses.problem, kOfThisMachine, Fault::usage);
  int problem = EADDRNOTAVAIL;
  for (const addrinfo* address = addresses.list.get(); address != nullptr; address = address->ai_next) {
    const int descriptor = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) continue;
    set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);  // old connections in TIME_WAIT do not matter
    if (bind(descriptor, address->ai_addr, address->ai_addrlen) == 0 && listen(descriptor, SOMAXCONN) == 0)
      return descriptor;
    problem = errno;
    ::close(descriptor);
  }
  if (problem == EADDRNOTAVAIL) refuse(std::strerror(problem), kOfThisMachine, Fault::usage);
  refuse(std::strerror(problem), "another port in --rendezvous, on all ranks", Fault::run_time);
  return -1;
}

uint16_t listening_port(int descriptor) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes);
  const bool is_v6 = address.ss_family == AF_INET6;
  return ntohs(is_v6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                     : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

ConnectAttempt connect_to_rank(const std::string& host, uint16_t port, RankSocket::Time limit) {
  const FoundAddresses addresses = addresses_of(host, port, 0);
  ConnectAttempt attempt{.reason = addresses.problem};
  for (const addrinfo* address = addresses.list.get(); address != nullptr; address = address->ai_next) {
    const int descriptor = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) continue;
    attempt.reason = connect_within(descriptor, *address, limit);
    if (attempt.reason.empty()) {
      fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
      attempt.descriptor = descriptor;
      return attempt;
    }
    ::close(descriptor);
  }
  return attempt;
}

}  // namespace nodewright
