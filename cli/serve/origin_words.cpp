#include "cli/serve/origin_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include "base/json_file.h"

namespace nodewright::cli {
namespace {

bool is_name_or_address(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return !host.empty() && std::ranges::all_of(host, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == ':' || c >= 0x80;
  });
}

bool is_port(std::string_view text) {
  int port = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
  return failed == std::errc() && end == text.data() + text.size() && port > 0 && port < 65536;
}

bool has_large_letters(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return std::isupper(c) != 0; });
}

}  // namespace

std::string why_no_origin(const std::string& text) {
  if (text.empty() || text == "*" || text == "null") return {};  // an empty one is refused as any empty value
  const auto is_no = [&](std::string_view why) {
    return fmt::format(
        "{} is no origin: {}; an origin is SCHEME://HOST or SCHEME://HOST:PORT, as "
        "http://localhost:3000, or * for all",
        in_quotes(text), why);
  };
  const size_t sign = text.find("://");
  if (sign == std::string::npos || sign == 0) return is_no("it has no scheme, and a browser sends one");
  const std::string_view scheme = std::string_view(text).substr(0, sign);
  std::string_view host = std::string_view(text).substr(sign + 3);
  if (host.find('/') != std::string_view::npos) return is_no("a path follows the host, and a browser sends none");
  if (has_large_letters(text)) return is_no("a browser sends small letters");
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    const std::string_view port = host.substr(colon + 1);
    if (!is_port(port)) return is_no("its port is no number from 1 to 65535");
    if ((scheme == "http" && port == "80") || (scheme == "https" && port == "443"))
      return is_no("a browser leaves the usual port out");
    host = host.substr(0, colon);
  }
  return is_name_or_address(host) ? std::string() : is_no("its host is no name and no address");
}

std::string why_no_host_name(const std::string& text) {
  if (text.empty() || text == "*") return {};
  const std::string_view name = std::string_view(text).substr(text.starts_with('.') ? 1 : 0);
  if (name.find(':') == std::string_view::npos && is_name_or_address(name) && !name.starts_with('.')) return {};
  return fmt::format(
      "{} is no name of a host: NAME without scheme, port and path, .DOMAIN for all below it, or * for "
      "all",
      in_quotes(text));
}

}  // namespace nodewright::cli
