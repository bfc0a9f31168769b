#include "serve/fields/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "base/written_number.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_field(const RequestJson& value, const std::string& name, const std::string& expected) {
  throw std::invalid_argument(fmt::format("{} is {}, expected {}", name, shown(value), expected));
}

}  // namespace

std::string shown(const RequestJson& value) {
  constexpr size_t kMost = 60;                // bytes: a line of an error stays one line of a terminal
  std::string text = json_text(value, true);  // ASCII: it can be cut anywhere
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

std::string described(const RequestJson& value) {
  if (value.is_null() || value.is_boolean()) return shown(value);
  const char* const kind = value.is_object()       ? "object"
                           : value.is_array()      ? "list"
                           : is_json_number(value) ? "number"
                                                   : "string";
  return fmt::format("the {} {}", kind, shown(value));
}

void refuse_value(const std::string& place, const RequestJson* found, const std::string& expected) {
  throw std::invalid_argument(found == nullptr
                                  ? fmt::format("{} is missing, expected {}", place, expected)
                                  : fmt::format("{} is {}, expected {}", place, described(*found), expected));
}

int64_t integer_of(const RequestJson& value, const std::string& name, int64_t least, int64_t most) {
  const std::optional<int64_t> number = whole_number(value);
  if (!number || *number < least || *number > most)
    refuse_field(value, name, fmt::format("an integer from {} to {}", least, most));
  return *number;
}

uint64_t seed_of(const RequestJson& value, const std::string& name) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  const std::optional<int64_t> number = whole_number(value);
  if (!number || *number < 0) refuse_field(value, name, fmt::format("an integer from 0 to {}", UINT64_MAX));
  return static_cast<uint64_t>(*number);
}

double number_of(const RequestJson& value, const std::string& name) {
  if (!is_json_number(value) || !std::isfinite(number_value(value))) refuse_field(value, name, "a number");
  return number_value(value);
}

std::string string_of(const RequestJson& value, const std::string& name) {
  if (!value.is_string()) refuse_field(value, name, "a string");
  return value.get<std::string>();
}

bool flag_of(const RequestJson& value, const std::string& name) {
  if (!value.is_boolean()) refuse_field(value, name, "true or false");
  return value.get<bool>();
}

std::vector<int32_t> token_ids_of(const RequestJson& value, const std::string& name, int64_t vocab) {
  if (!value.is_array()) refuse_field(value, name, "a list of token ids");
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const RequestJson& id : value) {
    const int64_t token = integer_of(id, "a token of " + name, INT32_MIN, INT32_MAX);
    if (token < 0 || token >= vocab)
      throw std::invalid_argument(fmt::format("{} holds token {}: the vocabulary has {} tokens", name, token, vocab));
    ids.push_back(static_cast<int32_t>(token));
  }
  return ids;
}

}  // namespace nodewright
