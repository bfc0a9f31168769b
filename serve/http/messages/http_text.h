// Text of HTTP messages that the server writes itself: heads of answers, errors, CORS. No sockets.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/http_server.h"

namespace nodewright {

// "Not Found" of 404; "Unknown" of a status that RFC 9110 and 6585 do not name.
std::string_view reason_phrase(int status);

// Whether they differ at most in the case of ASCII letters.
bool same_ignoring_case(std::string_view a, std::string_view b);

// The value of the first header of this name; empty if there is none.
std::string_view header_value(const HttpHeaders& headers, std::string_view name);

// What the head of an answer says beside its headers.
struct AnswerHead {
  int status = 200;
  std::string_view content_type;         // empty: no such header
  std::optional<size_t> content_length;  // none: no such header
  bool chunked = false;
  bool close = false;
};

// Status line, Date, the headers of `head`, `fixed` (whole lines) and `more`, and the empty line.
std::string head_text(const AnswerHead& head, std::string_view fixed, const HttpHeaders& more);

// Whole lines, for `fixed`.
std::string header_lines(const HttpHeaders& headers);

// The body of an error that is not the handler's, in the form of OpenAI's API. `message` may be any bytes.
std::string error_body(int status, std::string_view message);

// Lines for the head of an answer to a page of `origin`, empty without `allowed`, which is HttpOptions::cors_origin.
std::string cors_lines(const std::optional<std::string>& allowed, std::string_view origin);

// Whether the server itself answers this request: a browser's question whether a page of the allowed origin may call.
bool is_allowed_preflight(const std::optional<std::string>& allowed, const HttpRequest& request);

// The headers of that answer beside cors_lines().
HttpHeaders preflight_headers(const HttpRequest& request);

}  // namespace nodewright
