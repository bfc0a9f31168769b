// A client for tests that sends and reads exactly the bytes that a test names, on a blocking socket with a time limit.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace nodewright {

constexpr std::chrono::seconds kPatience{300};  // until a test that hangs ends; none that passes waits for it

// Whether `holds` becomes true within kPatience.
inline bool eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class RawClient {
 public:
  // Connects to 127.0.0.1. `receive_bytes`: of the socket's buffer, 0 for the system's choice.
  explicit RawClient(uint16_t port, int receive_bytes = 0) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail("connect");
  }
  explicit RawClient(const std::filesystem::path& path) : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail("connect");
  }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), unread_(std::move(other.unread_)) {}
  RawClient& operator=(RawClient&& other) noexcept {
    std::swap(socket_, other.socket_);
    unread_.swap(other.unread_);
    return *this;
  }
  ~RawClient() { hang_up(); }

  void say(std::string_view bytes) {
    if (!try_say(bytes)) fail("send");
  }
  // False if the server has closed the connection.
  bool try_say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  // What comes, up to and with `mark`.
  std::string hear_until(std::string_view mark) {
    size_t found = 0;
    while ((found = unread_.find(mark)) == std::string::npos) {
      if (!hear_more()) throw std::runtime_error("the server closed before '" + std::string(mark) + "': " + unread_);
    }
    return take(found + mark.size());
  }
  std::string hear_bytes(size_t count) {
    while (unread_.size() < count) {
      if (!hear_more()) throw std::runtime_error("the server closed early: " + unread_);
    }
    return take(count);
  }
  // What comes until the server closes, in whichever way.
  std::string hear_to_end() {
    while (hear_more()) {
    }
    return take(unread_.size());
  }
  // One answer with a Content-Length, or without a body.
  std::string hear_answer() {
    std::string answer = hear_until("\r\n\r\n");
    const size_t at = answer.find("Content-Length: ");
    if (at == std::string::npos) return answer;
    size_t bytes = 0;
    std::from_chars(answer.data() + at + 16, answer.data() + answer.size(), bytes);
    return answer + hear_bytes(bytes);
  }
  std::string ask(std::string_view bytes) {
    say(bytes);
    return hear_answer();
  }

  int descriptor() const { return socket_; }

  void hang_up() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }
  // As a process that dies with bytes unread.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    hang_up();
  }

 private:
  bool hear_more() {
    pollfd wait{.fd = socket_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) == 0) {
      throw std::runtime_error("nothing came within the time limit; so far: " + unread_);
    }
    char bytes[16384];
    const ssize_t count = recv(socket_, bytes, sizeof(bytes), 0);
    if (count > 0) unread_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }
  std::string take(size_t count) {
    std::string taken = unread_.substr(0, count);
    unread_.erase(0, count);
    return taken;
  }
  [[noreturn]] void fail(const char* what) {
    const std::string reason = std::strerror(errno);
    hang_up();
    throw std::runtime_error(std::string(what) + ": " + reason);
  }

  int socket_;
  std::string unread_;
};

}  // namespace nodewright
