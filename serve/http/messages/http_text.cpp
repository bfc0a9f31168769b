// Text of HTTP messages that the server writes itself.
#include "serve/http/messages/http_text.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

namespace nodewright {
namespace {

constexpr std::pair<int, std::string_view> kReasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

// A header's name or value on one line: a client's words in an answer must not end the line.
void append_line_text(std::string& text, std::string_view piece) {
  for (const char byte : piece) text += byte == '\r' || byte == '\n' || byte == '\0' ? ' ' : byte;
}

void append_header(std::string& text, std::string_view name, std::string_view value) {
  append_line_text(text, name);
  text += ": ";
  append_line_text(text, value);
  text += "\r\n";
}

// RFC 9110, 5.6.7: names in English whatever the locale.
void append_date(std::string& text) {
  static constexpr std::string_view kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                 "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> numbers{};
  text += "Date: ";
  text += kDays[parts.tm_wday];
  text.append(numbers.data(), std::strftime(numbers.data(), numbers.size(), ", %d ", &parts));
  text += kMonths[parts.tm_mon];
  text.append(numbers.data(), std::strftime(numbers.data(), numbers.size(), " %Y %H:%M:%S GMT\r\n", &parts));
}

}  // namespace

std::string_view reason_phrase(int status) {
  const auto* const found = std::find_if(std::begin(kReasons), std::end(kReasons),
                                         [status](const auto& reason) { return reason.first == status; });
  return found == std::end(kReasons) ? "Unknown" : found->second;
}

bool same_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view header_value(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (same_ignoring_case(key, name)) return value;
  }
  return {};
}

std::string head_text(const AnswerHead& head, std::string_view fixed, const HttpHeaders& more) {
  std::string text = "HTTP/1.1 " + std::to_string(head.status) + ' ';
  text += reason_phrase(head.status);
  text += "\r\n";
  append_date(text);
  if (!head.content_type.empty()) append_header(text, "Content-Type", head.content_type);
  if (head.content_length) append_header(text, "Content-Length", std::to_string(*head.content_length));
  if (head.chunked) append_header(text, "Transfer-Encoding", "chunked");
  if (head.close) append_header(text, "Connection", "close");
  text += fixed;
  for (const auto& [name, value] : more) append_header(text, name, value);
  text += "\r\n";
  return text;
}

std::string header_lines(const HttpHeaders& headers) {
  std::string lines;
  for (const auto& [name, value] : headers) append_header(lines, name, value);
  return lines;
}

std::string error_body(int status, std::string_view message) {
  const nlohmann::json error = {{"message", message},
                                {"type", status >= 500 ? "InternalServerError" : "BadRequestError"},
                                {"param", nullptr},
                                {"code", status}};
  return nlohmann::json{{"error", error}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string cors_lines(const std::optional<std::string>& allowed, std::string_view origin) {
  if (!allowed) return {};
  std::string lines = "Vary: Origin\r\n";
  if (!origin.empty() && (*allowed == "*" || origin == *allowed))
    append_header(lines, "Access-Control-Allow-Origin", *allowed);
  return lines;
}

bool is_allowed_preflight(const std::optional<std::string>& allowed, const HttpRequest& request) {
  const std::string_view origin = request.header("Origin");
  return allowed && request.method == "OPTIONS" && !origin.empty() && (*allowed == "*" || origin == *allowed) &&
         !request.header("Access-Control-Request-Method").empty();
}

HttpHeaders preflight_headers(const HttpRequest& request) {
  HttpHeaders headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"},
                         {"Access-Control-Max-Age", "600"}};  // seconds, so that not every call asks first
  const std::string_view asked = request.header("Access-Control-Request-Headers");
  if (!asked.empty()) headers.emplace_back("Access-Control-Allow-Headers", asked);
  return headers;
}

}  // namespace nodewright
