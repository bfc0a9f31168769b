// A TCP connection to another rank's process, by the calls of POSIX: whole runs of bytes, or the news that it is gone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "engine/ranks/rank_frames.h"

namespace nodewright {

// host:port, [v6]:port.
std::string rank_address_text(const std::string& host, uint16_t port);

// Owns the descriptor. One thread may send while another receives; shut_down() and is_gone() are for any thread.
class RankSocket {
 public:
  using Time = std::chrono::steady_clock::time_point;

  RankSocket() = default;
  // Takes a connected descriptor: small messages leave at once, and TCP asks a silent machine whether it is still
  // there.
  explicit RankSocket(int descriptor);
  RankSocket(RankSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  RankSocket& operator=(RankSocket&& other) noexcept;
  ~RankSocket() { close(); }

  // All of it; false: the other end is gone, or this one was shut down.
  bool send(std::span<const std::byte> bytes) const noexcept;
  // All of it; false as send(), and when `limit` has come before.
  bool receive(std::span<std::byte> bytes, std::optional<Time> limit = {}) const noexcept;
  // A frame; false as receive(). Throws Error where its length is none that a frame has.
  bool receive(Frame& frame, std::optional<Time> limit = {}) const;

  // Whether the other end has closed, which does not wait; what it sent before may still be there.
  bool is_gone() const noexcept;
  // Ends what waits here, on both ends.
  void shut_down() const noexcept;
  void close() noexcept;

  int descriptor() const { return descriptor_; }  // -1: none
  std::string peer() const;                       // 10.0.0.2:40312

 private:
  int descriptor_ = -1;
};

// Listens at the first address of `host` that can be had, and returns the descriptor. Throws Error (usage).
int listen_for_ranks(const std::string& host, uint16_t port);
// The port at which a descriptor listens.
uint16_t listening_port(int descriptor);

// One attempt, no longer than `limit`: a connected descriptor, or -1 and why.
struct ConnectAttempt {
  int descriptor = -1;
  std::string reason;
};
ConnectAttempt connect_to_rank(const std::string& host, uint16_t port, RankSocket::Time limit);

}  // namespace nodewright
