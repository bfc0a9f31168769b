#include "serve/http/browser_rules.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/visible_text.h"
#include "serve/http/messages/http_text.h"

namespace nodewright {
namespace {

constexpr size_t kShownBytes = 100;  // of a name in a message

bool is_address(std::string_view name) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  const std::string text(name.substr(0, name.find('%')));  // without the zone of fe80::1%eth0
  return inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 || inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

bool ends_with_ignoring_case(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && same_ignoring_case(text.substr(text.size() - end.size()), end);
}

bool is_named_by(std::string_view rule, std::string_view name) {
  if (rule == "*") return true;
  if (rule.starts_with('.')) return ends_with_ignoring_case(name, rule) && name.size() > rule.size();
  return same_ignoring_case(rule, name);
}

bool may_be_host(const BrowserRules& rules, std::string_view host) {
  std::string_view name = host_name(host);
  if (name.ends_with('.')) name.remove_suffix(1);
  if (name.find('.') == std::string_view::npos || is_address(name) || ends_with_ignoring_case(name, ".localhost"))
    return true;
  return std::ranges::any_of(rules.hosts, [&](const std::string& rule) { return is_named_by(rule, name); });
}

std::string_view without_scheme(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  return {};
}

bool opens_a_page(const HttpRequest& head) {
  return (head.method == "GET" || head.method == "HEAD") &&
         same_ignoring_case(head.header("Sec-Fetch-Mode"), "navigate") &&
         same_ignoring_case(head.header("Sec-Fetch-Dest"), "document");
}

}  // namespace

std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, std::min(host.find(']'), host.size()) - 1);
  return host.substr(0, host.find(':'));
}

std::string why_foreign(const BrowserRules& rules, const HttpRequest& head, bool is_page) {
  const std::string_view host = head.header("Host"), origin = head.header("Origin");
  if (!may_be_host(rules, host)) {
    const std::string shown = log_word(host_name(host), kShownBytes);
    return fmt::format("this server is not known as {}; --allowed-host {} allows the name", shown, shown);
  }
  const bool is_allowed = rules.origin && !origin.empty() && (*rules.origin == "*" || origin == *rules.origin);
  if (is_allowed) return {};
  const std::string_view site = head.header("Sec-Fetch-Site");
  const bool is_own = same_ignoring_case(site, "same-origin") || same_ignoring_case(without_scheme(origin), host);
  if (!origin.empty() && !is_own) {
    const std::string shown = log_word(origin, kShownBytes);
    return fmt::format("pages of {} may not call this server; --cors-origin {} allows them", shown, shown);
  }
  if (same_ignoring_case(site, "cross-site") && !(is_page && opens_a_page(head)))
    return "a page of another site may not call this server; --cors-origin with its origin allows it";
  return {};
}

bool is_json_type(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  return same_ignoring_case(type, "application/json") ||
         (type.find('/') != std::string_view::npos && ends_with_ignoring_case(type, "+json"));
}

}  // namespace nodewright
