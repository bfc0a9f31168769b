#include "serve/http/messages/query_fields.h"

#include <algorithm>
#include <charconv>

namespace nodewright {

std::vector<std::string_view> query_values(std::string_view query, std::string_view name) {
  std::vector<std::string_view> values;
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), field.size() + 1));
    const size_t equals = field.find('=');
    if (field.substr(0, equals) == name) values.push_back(equals == field.npos ? "" : field.substr(equals + 1));
  }
  return values;
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    const bool is_sign =
        text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    decoded += is_sign ? static_cast<char>(byte) : text[i];
    if (is_sign) i += 2;
  }
  return decoded;
}

std::string_view query_value(std::string_view query, std::string_view name) {
  const std::vector<std::string_view> values = query_values(query, name);
  return values.empty() ? std::string_view() : values.front();
}

}  // namespace nodewright
