// What the API answers instead of a result: a status of HTTP and the body that OpenAI's and vLLM's clients read.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace nodewright {

class ApiError : public std::runtime_error {
 public:
  // `param`: the field of the request at fault; empty where none is.
  ApiError(int status, const std::string& message, std::string param = {})
      : std::runtime_error(message), status_(status), message_(message), param_(std::move(param)) {}

  int status() const { return status_; }  // 400 to 599
  const std::string& param() const { return param_; }
  const std::string& message() const { return message_; }  // all of it, where what() ends at a NUL of the request's
  // As vLLM calls this status: "BadRequestError", "NotFoundError", ...
  std::string_view type() const;

 private:
  int status_;
  std::string message_;
  std::string param_;
};

// {"error":{"message","type","param","code"}}, without a line feed.
std::string error_body(const ApiError& error);

// 400.
ApiError bad_request(const std::string& message, std::string param = {});
// 400: the field `param` asks for something that cannot be done; `why` follows "is not supported".
ApiError not_supported(const std::string& param, const std::string& why = {});

}  // namespace nodewright
