// Where a server is: a URL, and the address that it stands for.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace nodewright {

// Where a server is. A value.
struct HttpPlace {
  std::string host;         // for the header Host, with the port
  std::string address;      // a name or an address, without brackets; empty for a unix socket
  uint16_t port = 80;       // not of a unix socket
  std::string unix_socket;  // its path
  std::string prefix;       // of every path, without a / at its end

  // Parses http://HOST[:PORT][/PREFIX] or unix:PATH. Throws Error.
  static HttpPlace of_url(const std::string& url);
};

// For connect().
struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;  // of what is used
};

// Looks up a name, which may take a while. Throws Error.
SocketAddress address_of(const HttpPlace& place);

}  // namespace nodewright
