#include "serve/fields/json_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace nodewright {
namespace {

[[noreturn]] void refuse_field(const RequestJson& value, const std::string& name, const std::string& expected) {
  throw std::invalid_argument(fmt::format("{} is {}, expected {}", name, shown(value), expected));
}

bool is_above_int64(const RequestJson& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX;
}

}  // namespace

std::string shown(const RequestJson& value) {
  constexpr size_t kMost = 60;  // bytes: a line of an error stays one line of a terminal
  std::string text = value.dump(-1, ' ', true, RequestJson::error_handler_t::replace);  // ASCII: it can be cut anywhere
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

int64_t integer_of(const RequestJson& value, const std::string& name, int64_t least, int64_t most) {
  if (!value.is_number_integer() || is_above_int64(value) || value.get<int64_t>() < least ||
      value.get<int64_t>() > most)
    refuse_field(value, name, fmt::format("an integer from {} to {}", least, most));
  return value.get<int64_t>();
}

uint64_t seed_of(const RequestJson& value, const std::string& name) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0))
    refuse_field(value, name, fmt::format("an integer from 0 to {}", UINT64_MAX));
  return value.get<uint64_t>();
}

double number_of(const RequestJson& value, const std::string& name) {
  if (!value.is_number()) refuse_field(value, name, "a number");
  return value.get<double>();
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
