// Where a server is.
#include "serve/http/sockets/http_place.h"

#include <netdb.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "runtime/error.h"

namespace nodewright {
namespace {

[[noreturn]] void bad_url(const std::string& url, const std::string& detail) {
  throw Error({.doing = "call a server", .object = url, .detail = detail, .fault = Fault::usage});
}

}  // namespace

HttpPlace HttpPlace::of_url(const std::string& url) {
  HttpPlace place;
  std::string_view rest = url;
  if (rest.starts_with("unix:")) {
    place.unix_socket = rest.substr(5);
    place.host = "localhost";
    if (place.unix_socket.empty()) bad_url(url, "expected a path behind unix:");
    return place;
  }
  if (!rest.starts_with("http://")) bad_url(url, "expected http://HOST:PORT or unix:PATH");
  rest.remove_prefix(7);
  const size_t slash = std::min(rest.find('/'), rest.size());
  place.prefix = rest.substr(slash);
  while (place.prefix.ends_with('/')) place.prefix.pop_back();
  rest = rest.substr(0, slash);
  place.host = rest;
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (has_port) {
    const std::string_view digits = rest.substr(colon + 1);
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), place.port);
    if (failure != std::errc() || end != digits.data() + digits.size() || place.port == 0) {
      bad_url(url, "the port '" + std::string(digits) + "' is not a number from 1 to 65535");
    }
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  place.address = rest;
  if (place.address.empty()) bad_url(url, "expected a host behind http://");
  return place;
}

SocketAddress address_of(const HttpPlace& place) {
  SocketAddress address;
  if (!place.unix_socket.empty()) {
    sockaddr_un path{};
    path.sun_family = AF_UNIX;
    if (place.unix_socket.size() >= sizeof(path.sun_path)) bad_url(place.unix_socket, "the path is too long");
    std::memcpy(path.sun_path, place.unix_socket.c_str(), place.unix_socket.size());
    std::memcpy(&address.bytes, &path, sizeof(path));
    address.size = sizeof(path);
    return address;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(place.address.c_str(), std::to_string(place.port).c_str(), &hints, &found);
  if (failure != 0) bad_url(place.host, gai_strerror(failure));
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

}  // namespace nodewright
