// A socket that listens, on an address or at a path.
#include "serve/http/sockets/listening_socket.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr int kFlags = SOCK_STREAM | SOCK_CLOEXEC;

[[noreturn]] void cannot_listen(const std::string& where, const std::string& reason, const char* advice,
                                Fault fault = Fault::usage) {
  throw Error({.doing = "listen on", .object = where, .detail = reason, .advice = advice, .fault = fault});
}

// The command line is wrong where it names what cannot be; an address that another program has is right tomorrow.
Fault fault_of(int problem) {
  const bool cannot_be = problem == EADDRNOTAVAIL || problem == EAFNOSUPPORT || problem == ENOENT || problem == ENOTDIR;
  return cannot_be ? Fault::usage : Fault::run_time;
}

std::string address_text(const std::string& host, const std::string& port) {
  return host.find(':') == std::string::npos ? host + ":" + port : "[" + host + "]:" + port;
}

const char* advice_for(int problem) {
  if (problem == EACCES) return "a port from 1024 on, or the capability CAP_NET_BIND_SERVICE for the ports below";
  if (problem == EADDRNOTAVAIL) return "an address that this machine has, or 0.0.0.0 for all of them";
  return "another port, or stop the program that has this one";
}

uint16_t bound_port(int descriptor) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  std::array<char, NI_MAXSERV> port{};
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  if (getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV) !=
      0) {
    return 0;
  }
  return static_cast<uint16_t>(std::stoi(port.data()));
}

// Opens the socket into `descriptor`; false leaves errno.
bool bind_and_listen(const addrinfo& address, int& descriptor) {
  descriptor = socket(address.ai_family, kFlags, 0);
  if (descriptor < 0) return false;
  const int yes = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));  // old connections in TIME_WAIT do not matter
  return bind(descriptor, address.ai_addr, address.ai_addrlen) == 0 && listen(descriptor, SOMAXCONN) == 0;
}

// Whether a server answers there; false also for a file without one.
bool somebody_listens(const sockaddr_un& address) {
  const int probe = socket(AF_UNIX, kFlags | SOCK_NONBLOCK, 0);
  if (probe < 0) return true;  // without a descriptor nothing is known: better no server than two
  const int result = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const bool listens = result == 0 || (errno != ECONNREFUSED && errno != ENOENT);
  ::close(probe);
  return listens;
}

void remove_stale_file(const std::string& path, const sockaddr_un& address) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) {
    cannot_listen(path, "a file that is no socket is there", "another path, or remove the file");
  }
  if (somebody_listens(address)) {
    cannot_listen(path, "a server listens there already", "another path, or stop that server", Fault::run_time);
  }
  unlink(path.c_str());
}

}  // namespace

ListeningSocket ListeningSocket::on_address(const std::string& host, uint16_t port) {
  const std::string port_text = std::to_string(port);
  const std::string where = address_text(host, port_text);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), port_text.c_str(), &hints, &found);
  if (failure != 0)
    cannot_listen(where, gai_strerror(failure), "127.0.0.1, or 0.0.0.0 for all of this machine's addresses");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);

  int problem = EADDRNOTAVAIL;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    ListeningSocket made;
    if (bind_and_listen(*address, made.descriptor_)) {
      made.port_ = bound_port(made.descriptor_);
      return made;
    }
    problem = errno;
  }
  cannot_listen(where, std::strerror(problem), advice_for(problem), fault_of(problem));
}

ListeningSocket ListeningSocket::at_path(const std::filesystem::path& path) {
  const std::string name = path.string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof(address.sun_path)) {
    cannot_listen(name,
                  "the path has " + std::to_string(name.size()) + " bytes, a unix socket's at most " +
                      std::to_string(sizeof(address.sun_path) - 1),
                  "a shorter path");
  }
  std::memcpy(address.sun_path, name.c_str(), name.size());
  remove_stale_file(name, address);

  ListeningSocket made;
  made.descriptor_ = socket(AF_UNIX, kFlags, 0);
  if (made.descriptor_ < 0 ||
      bind(made.descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int problem = errno;
    cannot_listen(name, std::strerror(problem), "a path in a folder that exists and may be written", fault_of(problem));
  }
  struct stat status {};
  if (lstat(name.c_str(), &status) == 0) {
    made.path_ = path;
    made.device_ = status.st_dev;
    made.inode_ = status.st_ino;
  }
  if (listen(made.descriptor_, SOMAXCONN) != 0)
    cannot_listen(name, std::strerror(errno), "another path", Fault::run_time);
  return made;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      port_(other.port_),
      path_(std::exchange(other.path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

ListeningSocket::~ListeningSocket() { close(); }

void ListeningSocket::close() noexcept {
  struct stat status {};
  if (!path_.empty() && lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_) {
    unlink(path_.c_str());
  }
  path_.clear();
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

std::string peer_name(int descriptor) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "unknown";
  if (address.ss_family == AF_UNIX) return "unix";
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return address_text(host.data(), port.data());
}

}  // namespace nodewright
