#include "serve/api/api_error.h"

#include <fmt/format.h>

#include <utility>

#include "serve/api/answer/event_text.h"

namespace nodewright {

std::string_view ApiError::type() const {
  constexpr std::pair<int, std::string_view> kTypes[] = {
      {401, "AuthenticationError"},    {403, "PermissionDeniedError"}, {404, "NotFoundError"},
      {409, "ConflictError"},          {413, "RequestTooLargeError"},  {429, "RateLimitError"},
      {503, "ServiceUnavailableError"}};
  for (const auto& [status, type] : kTypes)
    if (status == status_) return type;
  return status_ < 500 ? "BadRequestError" : "InternalServerError";
}

std::string error_body(const ApiError& error) {
  std::string text = R"({"error":{"message":)";
  append_json_string(text, error.message());
  fmt::format_to(std::back_inserter(text), R"(,"type":"{}","param":)", error.type());
  if (error.param().empty())
    text += "null";
  else
    append_json_string(text, error.param());
  fmt::format_to(std::back_inserter(text), R"(,"code":{}}}}})", error.status());
  return text;
}

ApiError bad_request(const std::string& message, std::string param) { return {400, message, std::move(param)}; }

ApiError not_supported(const std::string& param, const std::string& why) {
  return {400, fmt::format("{} is not supported{}{}", param, why.empty() ? "" : ": ", why), param};
}

}  // namespace nodewright
