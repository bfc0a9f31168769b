// The fields of a request's query, as sent, and the decoding of percent signs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

// The values of all fields with this name, in order; empty for one without "=".
std::vector<std::string_view> query_values(std::string_view query, std::string_view name);
// The first of them; empty where it has none.
std::string_view query_value(std::string_view query, std::string_view name);

// With %XX as the byte that it stands for; what is no such sign stays.
std::string percent_decoded(std::string_view text);

}  // namespace nodewright
