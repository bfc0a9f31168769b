#include "serve/tools/opened_arguments.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "serve/api/asked/request_body.h"

namespace nodewright {

void open_arguments(RequestJson& calls) {
  if (!calls.is_array())
    throw std::invalid_argument(fmt::format("messages holds the tool_calls {}, expected a list", shown(calls)));
  for (RequestJson& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      throw std::invalid_argument(
          fmt::format("messages holds the tool call {}, expected an object with a function", shown(call)));
    RequestJson& function = call["function"];
    const RequestJson arguments = function.value("arguments", RequestJson());
    if (!arguments.is_string()) continue;
    const std::string& text = arguments.get_ref<const std::string&>();
    if (text.empty())
      function["arguments"] = RequestJson::object();
    else
      try {
        function["arguments"] = RequestBody::parse(text).json();
      } catch (const ApiError& error) {
        throw std::invalid_argument(
            fmt::format("messages holds a tool call whose arguments are no JSON object: {}", error.what()));
      }
  }
}

}  // namespace nodewright
