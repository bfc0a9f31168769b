// A socket that listens, on an address or at a path, by the calls of POSIX.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace nodewright {

// Owns the descriptor, and the file of a unix socket. Not thread-safe.
class ListeningSocket {
 public:
  // On the first address of `host` that can be had; port 0: any that is free. Throws Error.
  static ListeningSocket on_address(const std::string& host, uint16_t port);
  // At `path`. Replaces the file of a server that is dead; throws Error if it lives, or the file is no socket.
  static ListeningSocket at_path(const std::filesystem::path& path);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();  // close()

  // The caller's from now on; the file stays here.
  int release() { return std::exchange(descriptor_, -1); }
  // 0 of a unix socket.
  uint16_t port() const { return port_; }
  // Removes the file, too, unless another server has put its own there.
  void close() noexcept;

 private:
  ListeningSocket() = default;

  int descriptor_ = -1;
  uint16_t port_ = 0;
  std::filesystem::path path_;  // of the unix socket
  uint64_t device_ = 0, inode_ = 0;
};

// The other end of a connection: 127.0.0.1:40312, [::1]:40312 or unix.
std::string peer_name(int descriptor);

}  // namespace nodewright
